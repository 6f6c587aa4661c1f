"""Compatibility: the deployment routes of fog-compute, and clients and agents of other versions."""
