"""The agent protocol, and channels into tasks with their flow control."""
