"""The agents' connections: joining, desired tasks, reports, and the secrets that tasks need to start."""
