"""Explanations of scheduling decisions, computed on demand and never in a pass."""
