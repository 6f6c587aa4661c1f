"""Access to running tasks: commands, ports and output."""
