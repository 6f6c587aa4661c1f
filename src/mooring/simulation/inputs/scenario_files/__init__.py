"""Scenario files: their schema, and the scenario that they describe."""
