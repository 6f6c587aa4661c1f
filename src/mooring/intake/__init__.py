"""The one way in: translate a request into a workload, admit it, write it, signal. Imports store, wire and model."""
