"""The number of tasks of a workload that are placed together or not at all, by the workload's own settings."""

from __future__ import annotations

from mooring.model.workloads.workload import OnInsufficient, Workload

_FAIL = OnInsufficient.FAIL


def fails_if_unschedulable(workload: Workload) -> bool:
    """Return whether the workload fails instead of queueing for its first placement."""
    return workload.on_insufficient is _FAIL and not workload.placed_before


def gang_size(workload: Workload) -> int:
    """Return how many pending tasks must find a node for any to be placed; 0 if each is placed independently."""
    if workload.gang or workload.single_node:
        return len(workload.tasks)
    if workload.min_tasks is not None:
        return min(max(workload.min_tasks - sum(workload.occupied.values()), 0), len(workload.tasks))
    return len(workload.tasks) if fails_if_unschedulable(workload) else 0
