"""Statuses of tasks, workloads and nodes, the table of legal transitions, and the derivation of a workload's status.

Pure: a table and a few functions. Every change of a status anywhere goes through `is_legal`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum


class _Status(StrEnum):
    # That of the text. Enum's own is many times slower, and statuses are looked up all the time.
    __hash__ = str.__hash__


class TaskStatus(_Status):
    PENDING = "PENDING"
    RESERVED = "RESERVED"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


class WorkloadStatus(_Status):
    PENDING = "PENDING"
    RESERVED = "RESERVED"
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class NodeStatus(_Status):
    READY = "READY"
    DRAINING = "DRAINING"
    SUSPECT = "SUSPECT"
    """Silent for a while: it gets no new tasks, and its tasks keep running."""
    LOST = "LOST"
    """Silent beyond the limit; its tasks are replaced elsewhere."""


T = TaskStatus
_ENDS = frozenset({T.SUCCEEDED, T.FAILED, T.CANCELLED, T.LOST})

TASK_EDGES: dict[TaskStatus, frozenset[TaskStatus]] = {
    T.PENDING: frozenset({T.RESERVED, T.SCHEDULED, T.CANCELLED, T.FAILED}),
    # Back to PENDING: the hold was given up. Nothing of the task was ever on the node, so it is no attempt.
    T.RESERVED: frozenset({T.PENDING, T.SCHEDULED, T.CANCELLED, T.FAILED}),
    T.SCHEDULED: frozenset({T.PREPARING, T.RUNNING, T.TERMINATING, T.FAILED, T.LOST}),
    T.PREPARING: frozenset({T.RUNNING, T.TERMINATING, T.SUCCEEDED, T.FAILED, T.LOST}),
    T.RUNNING: frozenset({T.TERMINATING, T.SUCCEEDED, T.FAILED, T.LOST}),
    T.TERMINATING: frozenset({T.SUCCEEDED, T.FAILED, T.CANCELLED, T.LOST}),
    T.SUCCEEDED: frozenset(),
    T.FAILED: frozenset(),
    T.CANCELLED: frozenset(),
    T.LOST: frozenset(),
}

W = WorkloadStatus
_WORKLOAD_ENDS = frozenset({W.SUCCEEDED, W.FAILED, W.CANCELLED, W.EXPIRED})

# A workload may move between all living statuses (a replica lost sends it back to PENDING), never out of an end.
WORKLOAD_EDGES: dict[WorkloadStatus, frozenset[WorkloadStatus]] = {
    status: frozenset() if status in _WORKLOAD_ENDS else frozenset(W) - {status} for status in W
}

# Workloads of which nothing is placed any more.
TERMINATING_OR_ENDED = _WORKLOAD_ENDS | {W.TERMINATING}

# What the tasks of a node's agent may report; the other edges belong to the control plane.
AGENT_REPORTS = frozenset({T.PREPARING, T.RUNNING, T.SUCCEEDED, T.FAILED, T.CANCELLED})

# Nodes that the next sign of life makes what they were before.
SILENT = frozenset({NodeStatus.SUSPECT, NodeStatus.LOST})

# Tasks that occupy a node: their ledger rows count there.
OCCUPYING = frozenset({T.RESERVED, T.SCHEDULED, T.PREPARING, T.RUNNING, T.TERMINATING})
# Tasks that are placed on a node, and were not seen running there.
UNSTARTED = frozenset({T.RESERVED, T.SCHEDULED, T.PREPARING})
# Tasks whose rows count as `used` rather than `reserved`.
USING = frozenset({T.RUNNING, T.TERMINATING})
# Tasks that are, or are on their way to be, a running part of their workload.
ACTIVE = frozenset({T.PENDING, T.RESERVED, T.SCHEDULED, T.PREPARING, T.RUNNING})


def is_legal(old: TaskStatus, new: TaskStatus) -> bool:
    return new in TASK_EDGES[old]


def is_end(status: TaskStatus) -> bool:
    return status in _ENDS


def is_workload_end(status: WorkloadStatus) -> bool:
    return status in _WORKLOAD_ENDS


def counted_status(status: TaskStatus, *, requeue: bool, stopping: bool) -> TaskStatus:
    """Return the status that a task counts with: a terminating task that will be replaced counts as pending.

    A task that completed before its eviction is not replaced.
    """
    leaves = status is T.TERMINATING or (status in _ENDS and status is not T.SUCCEEDED)
    return T.PENDING if requeue and not stopping and leaves else status


def derive(
    current: WorkloadStatus,
    tasks: Iterable[TaskStatus],
    *,
    desired: int,
    service: bool,
    stopping: bool,
    array: bool = False,
) -> WorkloadStatus:
    """Return a workload's status from those of its current tasks; the first match wins.

    `desired`: how many tasks it wants. `service`: ended tasks are replaced, so they count as pending.
    `stopping`: its end was asked for, so nothing is replaced any more. `array`: no task depends on another, so one
    that ended badly says nothing before all have ended.
    """
    replaced = service and not stopping
    count = Counter(T.PENDING if replaced and status in _ENDS else status for status in tasks)
    alive = any(count[status] for status in (*ACTIVE, T.TERMINATING))
    if stopping:
        return W.TERMINATING if alive else W.CANCELLED
    if replaced and desired == 0:
        # All that is wanted of it runs, whichever tasks are still ending.
        return W.RUNNING
    if not (array and alive):
        if count[T.FAILED] or count[T.LOST]:
            return W.TERMINATING if alive else W.FAILED
        if count[T.CANCELLED]:
            return W.TERMINATING if alive else W.CANCELLED
        if count[T.SUCCEEDED] and count[T.SUCCEEDED] >= desired:
            return W.SUCCEEDED
    if count[T.RUNNING] and (array or current is W.RUNNING or count[T.RUNNING] + count[T.SUCCEEDED] >= desired):
        return W.RUNNING
    for least_advanced, derived in _LEAST_ADVANCED:
        if count[least_advanced]:
            return derived
    return current


# While it starts, the least advanced task speaks for the whole.
_LEAST_ADVANCED: tuple[tuple[TaskStatus, WorkloadStatus], ...] = (
    (T.PENDING, W.PENDING),
    (T.RESERVED, W.RESERVED),
    (T.SCHEDULED, W.SCHEDULED),
    (T.PREPARING, W.PREPARING),
    (T.RUNNING, W.PREPARING),
    (T.TERMINATING, W.TERMINATING),
)
