"""The tables of the kernels that count placed tasks per row and per domain of the topology.

Imports the kernels' layout and the lowered profile, no plugin.
"""
