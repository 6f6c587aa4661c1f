"""Groups of pending workloads that are alike to placement, with the reason why they are unschedulable."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.explain.unschedulable_reasons import UnplacedTasks
from mooring.scheduling.gang_size import fails_if_unschedulable
from mooring.scheduling.queue.requeue_index import Entry


@dataclass(frozen=True, slots=True)
class ShapeClass:
    """The properties that decide whether a workload can be placed; workloads with equal ones share a group."""

    shape: Shape
    tasks: int
    later: tuple[datetime, ...]
    """The times at which its backed-off tasks may be tried."""
    gang: bool
    min_tasks: int | None
    max_per_node: int | None
    single_node: bool
    occupied: frozenset[tuple[UUID, int]]
    """The nodes of its tasks, if these restrict the placement of further tasks."""
    longest_seconds: int | None
    expected_seconds: int | None
    gap_seconds: int | None
    notice_seconds: int | None
    """For how long capacity must be unbooked for work without an end. Like the duration it is part of the key because a
    backfill window may be long enough for one workload and too short for another."""


@dataclass(slots=True, eq=False)
class Group:
    """Pending workloads that are alike to placement, with the reason why they are unschedulable."""

    shape_class: ShapeClass
    entry: Entry
    unplaced: UnplacedTasks
    members: dict[UUID, Workload] = field(default_factory=dict)
    reason: Reason | None = None
    reason_revision: int = -1
    """The revision of the columns to which the reason applies."""
    to_notify: set[UUID] = field(default_factory=set)
    """Members that joined, or were tried because of a change, since the reason was last reported."""
    refused: bool = False
    """Admission refused some of the members handed out last: there may be capacity for others behind them."""


def at_once(workload: Workload) -> int:
    """Return the number of tasks that must be placed together for any of them to be placed."""
    if workload.gang:
        return len(workload.tasks)
    if workload.min_tasks is not None:
        return max(1, min(len(workload.tasks), workload.min_tasks - sum(workload.occupied.values())))
    return 1


def lacks_capacity(group: Group) -> bool:
    """Return whether the release of capacity may cure the group, as far as its reason is known."""
    return group.reason is None or group.reason.cure == "release"


def may_be_planned(group: Group) -> bool:
    """Return whether the group lacks capacity and its start was not found to be impossible to plan."""
    return lacks_capacity(group) and group.unplaced.unplanned is None


def is_plain(workload: Workload) -> bool:
    """Return whether capacity alone decides whether the workload, which is new, starts now or waits."""
    if workload.gates or workload.booking is not None or workload.planned_start is not None:
        return False
    if not workload.tasks or fails_if_unschedulable(workload):
        return False
    return all(task.not_before is None for task in workload.tasks)
