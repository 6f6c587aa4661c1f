"""The scheduling policy of a pool, preemption and holds."""
