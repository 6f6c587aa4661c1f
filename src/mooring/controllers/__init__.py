"""The loops of the leader: scheduling, lifecycle, nodes, simulation, retention. Each survives its own errors."""
