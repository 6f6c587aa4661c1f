"""Daily usage, measured consumption, records of ended workloads, occupancy, and purging of old rows."""
