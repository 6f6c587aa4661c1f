"""Supervised background tasks, worker threads and backoff."""
