"""A workload's status follows from its tasks: the write that keeps it so, and why, in the words that people read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Any
from uuid import UUID

from mooring.model import lifecycle
from mooring.model.admission import Checked
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import WORKLOAD_ENDS, Reason
from mooring.model.timeslots import TIMESLOT_OVER
from mooring.model.workloads import Kind
from mooring.store import events, records
from mooring.store.changes import Applied, Change, WorkloadChange
from mooring.store.history import Journal
from mooring.store.loading import Loaded, LoadedWorkload
from mooring.store.sets import Update, Writes

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
        "placed": "placed_before = w.placed_before OR i.placed",
        "started": "started_at = CASE WHEN i.started THEN coalesce(w.started_at, {at}) ELSE w.started_at END",
        "ended": "ended_at = CASE WHEN i.ended THEN coalesce(w.ended_at, {at}) ELSE w.ended_at END",
        "lowered": "priority = CASE WHEN i.lowered THEN i.priority ELSE w.priority END",
        "admission": "admission = coalesce(i.admission, w.admission)",
    },
    at="timestamptz",
)
Ends = Mapping[UUID, tuple[WorkloadStatus, Reason]]
"""Workloads that end as a whole: how, and why."""
_NOT_COUNTED: Counter[TaskStatus] = Counter()
# A workload in one of these has nothing to explain.
_GOES_WELL = frozenset(
    {WorkloadStatus.SCHEDULED, WorkloadStatus.PREPARING, WorkloadStatus.RUNNING, WorkloadStatus.SUCCEEDED}
)


def derive_workloads(
    writes: Writes,
    loaded: Loaded,
    applied: Applied,
    ended: Ends,
    lowered: Set[UUID],
    looks: Mapping[UUID, Checked],
    journal: Journal,
) -> None:
    """Bring the workloads in line with their tasks.

    `ended`: those that end as a whole, and how, unless some task of theirs is alive. `lowered`: those that have
    another priority now. `looks`: how admission looked at those that it let pass.
    """
    statuses: dict[UUID, list[TaskStatus]] = {workload_id: [] for workload_id in loaded.workloads}
    for task in loaded.tasks.values():
        if task.current:
            status = task.status
            if task.requeue:
                stopping = loaded.workloads[task.workload_id].stopping
                status = lifecycle.as_derived(status, requeue=True, stopping=stopping)
            statuses[task.workload_id].append(status)
    touched: dict[UUID, list[Change]] = defaultdict(list)
    placed_in: set[UUID] = set()
    for change, _ in applied.tasks:
        workload_id = loaded.tasks[change.task_id].workload_id
        touched[workload_id].append(change)
        if change.new is TaskStatus.SCHEDULED:
            placed_in.add(workload_id)
    updates: list[tuple[Any, ...]] = []
    over: list[UUID] = []
    for workload_id, workload in loaded.workloads.items():
        old = new = workload.status
        seen, desired = tuple(statuses[workload_id]), workload.replicas
        count = _NOT_COUNTED
        if workload.array:
            # How many of its tasks are in a status changes nothing before all have ended.
            count = loaded.others.get(workload_id, count) + Counter(seen)
            seen, desired = tuple(sorted(count)), 1
        if not lifecycle.is_workload_end(old):
            new = _derive(old, seen, desired, workload.kind, workload.stopping, workload.array)
            # What still lives of it decides otherwise: a replica runs, or one was added since.
            if workload_id in ended and all(map(lifecycle.is_end, seen)):
                new = ended[workload_id][0]
        own = touched.get(workload_id, ())
        if new is old and not own:
            continue
        placed = workload_id in placed_in
        reason = ended[workload_id][1] if workload_id in ended else _explain(new, own, workload, count)
        kept = None if reason is None or new in _GOES_WELL else reason.as_dict()
        explained = reason is not None or placed or new in _GOES_WELL
        ends = lifecycle.is_workload_end(new)
        # What is over quickly starts and ends in one report.
        starts = new is WorkloadStatus.RUNNING or (ends and any(change.new is TaskStatus.RUNNING for change in own))
        workload.version += 1
        workload.status = new
        lower = (workload_id in lowered, workload.priority)
        look = looks[workload_id].as_dict() if workload_id in looks else None
        updates.append((workload_id, new, workload.version, explained, kept, placed, starts, ends, *lower, look))
        journal.tell(events.NewEvent("workload", workload_id, workload.version, new, None, workload_id))
        if new is not old:
            if ends:
                over.append(workload_id)
            text = reason.message if reason else None
            journal.note("workload", workload_id, workload_id, old, new, text)
            applied.workloads.append(WorkloadChange(workload_id, workload.name, workload.kind, old, new, text))
    if updates:
        writes.add(_UPDATE, updates, at=journal.now)
    records.write(writes, over)


@lru_cache(maxsize=1000)
def _derive(
    old: WorkloadStatus, tasks: tuple[TaskStatus, ...], desired: int, kind: str, stopping: bool, array: bool
) -> WorkloadStatus:
    service = kind == Kind.DEPLOYMENT
    return lifecycle.derive(old, tasks, desired=desired, service=service, stopping=stopping, array=array)


def _explain(
    new: WorkloadStatus, own: Sequence[Change], workload: LoadedWorkload, count: Counter[TaskStatus]
) -> Reason | None:
    """Why the workload is in its new status, in the words that its history keeps."""
    if new is WorkloadStatus.CANCELLED and workload.stopping:
        over = (change.reason for change in own if change.reason is not None and change.reason.code == TIMESLOT_OVER)
        return next(over, Reason("cancelled", "Stopped as asked", "user"))
    if new is WorkloadStatus.FAILED and workload.array:
        failed = count.total() - count[TaskStatus.SUCCEEDED]
        return Reason("tasks-failed", f"{failed} of {count.total()} tasks failed", "lifecycle", "never")
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
    WorkloadStatus.RESERVED: ("reserved", "A place is kept for {many}", "scheduler"),
    WorkloadStatus.RUNNING: ("running", "{every} started", "agent"),
    WorkloadStatus.SUCCEEDED: ("succeeded", "{every} ended with success", "agent"),
}
