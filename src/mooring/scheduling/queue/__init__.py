"""The pending queue: unschedulable work indexed by its reason, and requeued when a change may cure it."""
