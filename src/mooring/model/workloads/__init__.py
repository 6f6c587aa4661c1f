"""Workloads and their tasks: templates, constraints, schedules and dependencies."""
