"""Runtimes: the contract, the records in the folders of tasks, and the two built-in runtimes (process, container)."""
