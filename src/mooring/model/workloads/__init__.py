"""Workloads and their tasks, and the rules of their lives."""
