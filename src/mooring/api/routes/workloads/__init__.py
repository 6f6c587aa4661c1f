"""Routes of submitted work: workloads, sessions, deployments, labs, bookings, volumes and secrets."""
