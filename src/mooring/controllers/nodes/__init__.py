"""Control loops over nodes: heartbeats, draining, failing nodes, simulated nodes, autoscaling."""
