"""Runs to learn run times from: the ended ones, and the features of their workloads.

Imports the database layer and the tables only.
"""
