"""The columnar cluster: one row per node, one array per property, with a journal and trials.

Imports `model` and NumPy only.
"""
