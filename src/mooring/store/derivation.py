"""A workload's status follows from its tasks: the write that keeps it so, and why, in the words that people read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import events
from mooring.store.changes import Applied, Change, WorkloadChange
from mooring.store.history import Journal
from mooring.store.loading import Loaded
from mooring.store.tables import workloads
from mooring.store.types import AnyRow

_UPDATE = (
    update(workloads)
    .where(workloads.c.id == bindparam("workload"))
    .values(
        status=bindparam("new_status"),
        reason=bindparam("new_reason", type_=workloads.c.reason.type),
        placed_before=bindparam("new_placed"),
        started_at=bindparam("new_started", type_=workloads.c.started_at.type),
        ended_at=bindparam("new_ended", type_=workloads.c.ended_at.type),
        updated_at=bindparam("new_updated", type_=workloads.c.updated_at.type),
        version=bindparam("new_version"),
    )
)


async def derive_workloads(
    connection: AsyncConnection, loaded: Loaded, applied: Applied, failed: Mapping[UUID, Reason], journal: Journal
) -> None:
    """Bring the workloads in line with their tasks; `failed` end as a whole unless some task of theirs is alive."""
    statuses: dict[UUID, list[TaskStatus]] = defaultdict(list)
    for row in loaded.tasks.values():
        if row["current"]:
            status = TaskStatus(row["status"])
            stopping = loaded.workloads[row["workload_id"]].stopping
            statuses[row["workload_id"]].append(lifecycle.as_derived(status, requeue=row["requeue"], stopping=stopping))
    touched: dict[UUID, list[Change]] = defaultdict(list)
    for change, _ in applied.tasks:
        touched[loaded.tasks[change.task_id]["workload_id"]].append(change)
    updates: list[dict[str, Any]] = []
    for workload_id, workload in loaded.workloads.items():
        old = WorkloadStatus(workload.status)
        new = old
        if not lifecycle.is_workload_end(old):
            new = lifecycle.derive(
                old,
                statuses[workload_id],
                desired=workload.replicas,
                service=workload.kind == Kind.DEPLOYMENT,
                stopping=workload.stopping,
            )
            # What still lives of it decides otherwise: a replica runs, or one was added since.
            if workload_id in failed and all(map(lifecycle.is_end, statuses[workload_id])):
                new = WorkloadStatus.FAILED
        own = touched[workload_id]
        placed = any(change.new is TaskStatus.SCHEDULED for change in own)
        if new is old and not own:
            continue
        reason = failed.get(workload_id) or _explain(new, own, workload)
        ended = lifecycle.is_workload_end(new)
        updates.append(
            {
                "workload": workload_id,
                "new_status": new,
                "new_reason": _kept_reason(new, own, workload, placed, reason),
                "new_placed": workload.placed_before or placed,
                "new_started": workload.started_at or (journal.now if new is WorkloadStatus.RUNNING else None),
                "new_ended": workload.ended_at or (journal.now if ended else None),
                "new_updated": journal.now,
                "new_version": workload.version + 1,
            }
        )
        journal.tell(events.NewEvent("workload", workload_id, workload.version + 1, new, None, workload_id))
        if new is not old:
            text = reason.message if reason else None
            journal.note("workload", workload_id, workload_id, old, new, text)
            applied.workloads.append(WorkloadChange(workload_id, workload.name, workload.kind, old, new, text))
    if updates:
        await connection.execute(_UPDATE, updates)


def _explain(new: WorkloadStatus, own: Sequence[Change], workload: AnyRow) -> Reason | None:
    """Why the workload is in its new status, in the words that its history keeps."""
    noun = "replica" if workload.kind == Kind.DEPLOYMENT else "task"
    one = workload.replicas == 1
    many = f"{workload.replicas} {noun}{'' if one else 's'}"
    every = f"The {noun}" if one else f"All {many}"
    if new is WorkloadStatus.SCHEDULED:
        return Reason("scheduled", f"Scheduled {many}", "scheduler")
    if new is WorkloadStatus.RUNNING:
        return Reason("running", f"{every} started", "agent")
    if new is WorkloadStatus.SUCCEEDED:
        return Reason("succeeded", f"{every} ended with success", "agent")
    if new is WorkloadStatus.CANCELLED:
        return Reason("cancelled", "Stopped as asked", "user")
    return next((change.reason for change in reversed(own) if change.reason is not None), None)


def _kept_reason(
    new: WorkloadStatus, own: Sequence[Change], workload: AnyRow, placed: bool, reason: Reason | None
) -> dict[str, Any] | None:
    """What stays with the workload: why it waits, fails or ended; nothing while it starts or runs well."""
    if new in (WorkloadStatus.SCHEDULED, WorkloadStatus.PREPARING, WorkloadStatus.RUNNING, WorkloadStatus.SUCCEEDED):
        return None
    if reason is not None:
        return reason.as_dict()
    return None if placed else workload.reason
