"""Schemas of pools, scaling, operations and the timeline."""
