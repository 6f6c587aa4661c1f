"""File operations as root below folders that a task can write."""
