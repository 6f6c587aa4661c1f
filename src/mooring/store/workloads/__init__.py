"""Workloads and their tasks: written at submission, read for placement, changed and stopped."""
