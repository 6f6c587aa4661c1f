"""Commands for nodes, pools, bookings and the cluster's state."""
