"""Defragmentation: moves of running tasks that make capacity usable, with a proven bound of what moves can gain.

Pure: a cluster and its tasks in, a plan out. It may import the cluster, the plugins and the solver of the core.
"""
