"""Mooring: a multi-tenant cluster scheduler and its control plane."""

__version__ = "0.1.0"
