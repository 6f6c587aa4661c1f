"""Outputs of a simulation: a row per job, a comparison, and an HTML report."""
