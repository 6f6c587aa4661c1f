"""The status of a workload, derived from its tasks, and the reason that its users read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from mooring.model import lifecycle
from mooring.model.calendar.timeslots import TIMESLOT_OVER
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import WORKLOAD_ENDS, Reason
from mooring.model.tenancy.admission import Checked
from mooring.model.workloads.workload import Kind
from mooring.store.accounting import ended_workloads
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import Loaded, LoadedWorkload
from mooring.store.commit.status_changes import Applied, Change, WorkloadChange
from mooring.store.control import events
from mooring.store.core.batch_sql import Update, Writes
from mooring.store.workloads.arrays import deferred_status

_UPDATE = Update(
    "workloads AS w",
    "w.id = i.id",
    {
        "id": "uuid",
        "status": "text",
        "version": "bigint",
        "explained": "boolean",
        "reason": "jsonb",
        "placed": "boolean",
        "started": "boolean",
        "ended": "boolean",
        "lowered": "boolean",
        "priority": "bigint",
        "admission": "jsonb",
    },
    always="status = i.status, version = i.version, updated_at = {at}",
    changes={
        "explained": "reason = CASE WHEN i.explained THEN i.reason ELSE w.reason END",
        "placed": """
            placed_before = w.placed_before OR i.placed,
            placed_at = CASE WHEN i.placed THEN coalesce(w.placed_at, {at}) ELSE w.placed_at END
        """,
        "started": "started_at = CASE WHEN i.started THEN coalesce(w.started_at, {at}) ELSE w.started_at END",
        "ended": "ended_at = CASE WHEN i.ended THEN coalesce(w.ended_at, {at}) ELSE w.ended_at END",
        "lowered": "priority = CASE WHEN i.lowered THEN i.priority ELSE w.priority END",
        "admission": "admission = coalesce(i.admission, w.admission)",
    },
    at="timestamptz",
)
End = tuple[WorkloadStatus, Reason]
Ends = Mapping[UUID, End]
"""Workloads that end as a whole: in which status, and why."""
_NOT_COUNTED: Counter[TaskStatus] = Counter()
# A workload in one of these statuses stores no reason.
_GOES_WELL = frozenset(
    {WorkloadStatus.SCHEDULED, WorkloadStatus.PREPARING, WorkloadStatus.RUNNING, WorkloadStatus.SUCCEEDED}
)


class _CurrentTasks(NamedTuple):
    """The current tasks of a workload, as its status depends on them."""

    statuses: tuple[TaskStatus, ...]
    wanted: int
    counts: Counter[TaskStatus] = _NOT_COUNTED
    """Of an array only."""
    all_ended: bool = False
    """Known only for a workload that is to end as a whole."""


def update_workloads(
    writes: Writes,
    loaded: Loaded,
    applied: Applied,
    ended: Ends,
    lowered: Set[UUID],
    admitted: Mapping[UUID, Checked],
    log: ChangeLog,
) -> None:
    """Bring the statuses of the workloads in line with their tasks.

    `ended`: workloads that end as a whole unless a task of theirs is alive. `lowered`: workloads whose priority has
    changed. `admitted`: the results of the admission checks that workloads have passed.
    """
    statuses = _statuses_by_workload(loaded)
    changes = _changes_by_workload(loaded, applied)
    rows: list[tuple[Any, ...]] = []
    over: list[UUID] = []
    for workload_id, workload in loaded.workloads.items():
        own, end = changes.get(workload_id, ()), ended.get(workload_id)
        tasks = _current_tasks(workload, statuses[workload_id], loaded, end)
        old, new = workload.status, _status(workload, tasks, end)
        if new is old and not own:
            continue
        workload.version += 1
        workload.status = new
        reason = _explain(new, own, workload, tasks.counts) if end is None else end[1]
        rows.append(_row(workload, own, reason, lowered=workload_id in lowered, admitted=admitted.get(workload_id)))
        log.add_event(events.NewEvent("workload", workload_id, workload.version, new, None, workload_id))
        if new is not old:
            text = reason.message if reason else None
            log.add_status("workload", workload_id, workload_id, old, new, text)
            applied.workloads.append(WorkloadChange(workload_id, workload.name, workload.kind, old, new, text))
            if lifecycle.is_workload_end(new):
                over.append(workload_id)
    if rows:
        writes.add(_UPDATE, rows, at=log.now)
    ended_workloads.write(writes, over)


def _statuses_by_workload(loaded: Loaded) -> dict[UUID, list[TaskStatus]]:
    """Return how each current task counts for its workload: one that will be replaced counts as pending."""
    statuses: dict[UUID, list[TaskStatus]] = {workload_id: [] for workload_id in loaded.workloads}
    for task in loaded.tasks.values():
        if task.current:
            status = task.status
            if task.requeue:
                stopping = loaded.workloads[task.workload_id].stopping
                status = lifecycle.counted_status(status, requeue=True, stopping=stopping)
            statuses[task.workload_id].append(status)
    return statuses


def _changes_by_workload(loaded: Loaded, applied: Applied) -> dict[UUID, list[Change]]:
    changes: dict[UUID, list[Change]] = defaultdict(list)
    for change, _ in applied.tasks:
        changes[loaded.tasks[change.task_id].workload_id].append(change)
    return changes


def _current_tasks(
    workload: LoadedWorkload, statuses: Sequence[TaskStatus], loaded: Loaded, end: End | None
) -> _CurrentTasks:
    if workload.array:
        return _current_tasks_of_array(workload, statuses, loaded, end)
    all_ended = end is not None and all(map(lifecycle.is_end, statuses))
    return _CurrentTasks(tuple(statuses), workload.replicas, all_ended=all_ended)


def _current_tasks_of_array(
    workload: LoadedWorkload, statuses: Sequence[TaskStatus], loaded: Loaded, end: End | None
) -> _CurrentTasks:
    """Return each status that some task of the array has, once.

    How many tasks have it makes no difference before all have ended, and an array may have very many.
    """
    counts = loaded.others.get(workload.id, _NOT_COUNTED) + Counter(statuses)
    all_ended = end is not None and all(map(lifecycle.is_end, counts))
    if workload.deferred:
        counts[deferred_status(ended=all_ended, stopping=workload.stopping)] += workload.deferred
    return _CurrentTasks(tuple(sorted(counts)), 1, counts, all_ended)


def _status(workload: LoadedWorkload, tasks: _CurrentTasks, end: End | None) -> WorkloadStatus:
    """Return the status that follows from the tasks. An end is final."""
    old = workload.status
    if lifecycle.is_workload_end(old):
        return old
    # A task that is alive prevents the end as a whole: a replica runs, or one was added since.
    if end is not None and tasks.all_ended:
        return end[0]
    return _derive(old, tasks.statuses, tasks.wanted, workload.kind, workload.stopping, workload.array)


def _row(
    workload: LoadedWorkload, own: Sequence[Change], reason: Reason | None, *, lowered: bool, admitted: Checked | None
) -> tuple[Any, ...]:
    """Return the values of `_UPDATE` for a workload in its new status."""
    new, entered = workload.status, [change.new for change in own]
    placed = TaskStatus.SCHEDULED in entered
    explained = reason is not None or placed or new in _GOES_WELL
    stored = None if reason is None or new in _GOES_WELL else reason.as_dict()
    ends = lifecycle.is_workload_end(new)
    # A short task starts and ends in one report.
    starts = new is WorkloadStatus.RUNNING or (ends and TaskStatus.RUNNING in entered)
    result = None if admitted is None else admitted.as_dict()
    priority = workload.priority
    return workload.id, new, workload.version, explained, stored, placed, starts, ends, lowered, priority, result


@lru_cache(maxsize=1000)
def _derive(
    old: WorkloadStatus, tasks: tuple[TaskStatus, ...], desired: int, kind: str, stopping: bool, array: bool
) -> WorkloadStatus:
    service = kind == Kind.DEPLOYMENT
    return lifecycle.derive(old, tasks, desired=desired, service=service, stopping=stopping, array=array)


def _explain(
    new: WorkloadStatus, own: Sequence[Change], workload: LoadedWorkload, count: Counter[TaskStatus]
) -> Reason | None:
    """Return the reason for the new status, as its history stores it."""
    if new is WorkloadStatus.CANCELLED and workload.stopping:
        over = (change.reason for change in own if change.reason is not None and change.reason.code == TIMESLOT_OVER)
        return next(over, Reason("cancelled", "Stopped by request", "user"))
    if new is WorkloadStatus.FAILED and workload.array:
        cancelled = count[TaskStatus.CANCELLED]
        failed = count.total() - count[TaskStatus.SUCCEEDED] - cancelled
        also = f", {cancelled} cancelled" if cancelled else ""
        return Reason("tasks-failed", f"{failed} of {count.total()} tasks failed{also}", "lifecycle", "never")
    if new is WorkloadStatus.CANCELLED and workload.array:
        text = f"{count[TaskStatus.CANCELLED]} of {count.total()} tasks cancelled"
        return Reason("tasks-cancelled", text, "lifecycle", "never")
    if new in _EXPLAINED:
        return _explained(new, workload.replicas, workload.kind)
    given = (change.reason for change in reversed(own) if change.reason is not None)
    return next((reason for reason in given if reason.code != WORKLOAD_ENDS), None)


@lru_cache(maxsize=1000)
def _explained(status: WorkloadStatus, replicas: int, kind: str) -> Reason:
    noun = "replica" if kind == Kind.DEPLOYMENT else "task"
    many = f"{replicas} {noun}{'' if replicas == 1 else 's'}"
    every = f"The {noun}" if replicas == 1 else f"All {many}"
    code, text, by = _EXPLAINED[status]
    return Reason(code, text.format(many=many, every=every), by)


_EXPLAINED = {
    WorkloadStatus.SCHEDULED: ("scheduled", "Scheduled {many}", "scheduler"),
    WorkloadStatus.RESERVED: ("reserved", "Capacity is held for {many}", "scheduler"),
    WorkloadStatus.RUNNING: ("running", "{every} started", "agent"),
    WorkloadStatus.SUCCEEDED: ("succeeded", "{every} succeeded", "agent"),
}
