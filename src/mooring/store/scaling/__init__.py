"""Autoscaling: node templates, scale requests, and the leader's advice."""
