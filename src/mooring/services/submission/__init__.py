"""Submission: translate a request into a workload, admit it, write it, signal."""
