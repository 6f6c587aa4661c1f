"""The server process: the composition root that wires every package together, its listening address and maintenance.

The only package that knows all others.
"""
