"""The one way in: translate a request into a workload, admit it, write it, signal.

Questions about workloads are answered here as well. Imports store, wire and model, and for questions mirror and core.
"""
