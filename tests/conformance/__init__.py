"""Kubernetes' own cases for its scheduler, run through the public face of the core."""
