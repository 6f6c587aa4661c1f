"""Servers of other schedulers, to compare with: on loopback, in temporary folders, stopped at the end.

The benchmarks use them too. Nothing here imports Mooring.
"""
