"""The one way in: translate a request into a workload, admit it, write it, signal. Questions about it are answered here, too, from the mirror and the core."""
