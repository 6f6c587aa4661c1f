"""Changes of running deployments: updates, rollback, pause, and the comparison with a file."""
