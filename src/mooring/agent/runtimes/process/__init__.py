"""The runtime for processes on the node itself, each under its own supervisor."""
