"""Consistency check and repair of redundant records: sources are compared, and status and majority decide.

May import the other packages of the store, and the model.
"""
