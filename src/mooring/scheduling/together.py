"""Which tasks of a workload are placed together or none, by what the workload itself says."""

from __future__ import annotations

from mooring.model.workloads import OnInsufficient, Workload

_FAIL = OnInsufficient.FAIL


def fails_at_once(workload: Workload) -> bool:
    """It is not to wait for its first placement."""
    return workload.on_insufficient is _FAIL and not workload.placed_before


def least_together(workload: Workload) -> int:
    """How many of the waiting tasks must find a node for any of them to be placed; 0: each goes by itself."""
    if workload.gang or workload.single_node:
        return len(workload.tasks)
    if workload.min_tasks is not None:
        return min(max(workload.min_tasks - sum(workload.occupied.values()), 0), len(workload.tasks))
    return len(workload.tasks) if fails_at_once(workload) else 0
