"""The runtime for containers: tasks in whatever engine answers on Docker's interface, and what they need there."""
