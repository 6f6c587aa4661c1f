"""The leader's control loops: scheduling, lifecycle, nodes, simulation, retention. Each survives its own errors."""
