"""Synthetic workloads from a seed: the same seed gives the same jobs."""
