"""The status and the request of a workload, reconciled with its tasks, its history and its template."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus, WorkloadStatus, counted_status, derive, is_end, is_workload_end
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Kind
from mooring.store.audit.corrections import Cell, Correction, Unresolved, Verdict, changed
from mooring.store.audit.evidence import REPAIR, amounts, requests_of_template
from mooring.store.audit.majority import (
    Decided,
    Undecided,
    Vote,
    majority,
)
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import events, status_history, tasks, workload_records, workload_revisions, workloads
from mooring.store.workloads.arrays import deferred_status

STATUS = "status follows from tasks"
_INDEXES = "as many tasks as wanted"
_REQUEST = "JSON = ledger, requested"
_STATUSES = [status.value for status in WorkloadStatus]


@dataclass(slots=True)
class WorkloadEvidence:
    workload: AnyRow
    tasks: list[AnyRow] = field(default_factory=list)
    history: list[AnyRow] = field(default_factory=list)
    record: AnyRow | None = None
    revision: AnyRow | None = None
    last_event: str | None = None
    """The last status in the event feed."""


async def load(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, WorkloadEvidence]:
    rows = await connection.execute(select(workloads).where(among(workloads.c.id, ids)))
    found = {row.id: WorkloadEvidence(row) for row in rows}
    columns = (tasks.c.workload_id, tasks.c.task_index, tasks.c.current, tasks.c.status, tasks.c.requeue)
    of_tasks = select(*columns, tasks.c.revision, tasks.c.requested_slots)
    for row in await connection.execute(of_tasks.where(among(tasks.c.workload_id, ids))):
        found[row.workload_id].tasks.append(row)
    past = select(status_history).where(
        among(status_history.c.workload_id, ids),
        status_history.c.noun == "workload",
        status_history.c.actor.not_like(f"{REPAIR}%"),
    )
    for row in await connection.execute(past.order_by(status_history.c.id)):
        found[row.object_id].history.append(row)
    statuses = select(events.c.object_id, events.c.kind).where(
        among(events.c.object_id, ids), events.c.noun == "workload", events.c.kind.in_(_STATUSES)
    )
    for id, kind in await connection.execute(statuses.order_by(events.c.revision)):
        found[id].last_event = kind
    for row in await connection.execute(select(workload_records).where(among(workload_records.c.workload_id, ids))):
        found[row.workload_id].record = row
    revisions = select(workload_revisions).where(among(workload_revisions.c.workload_id, ids))
    for row in await connection.execute(revisions):
        if row.number == found[row.workload_id].workload.revision:
            found[row.workload_id].revision = row
    return found


def reconcile(own: WorkloadEvidence) -> Verdict:
    """Return the corrections of a workload whose tasks are consistent."""
    subject = f"workload {own.workload.id} ({own.workload.status})"
    try:
        return Verdict(
            (
                *_index_corrections(own, subject),
                *_status_corrections(own, subject),
                *_request_corrections(own, subject),
            )
        )
    except Undecided as undecided:
        return Verdict(unresolved=(Unresolved("records of a workload agree", subject, str(undecided)),))


def _index_corrections(own: WorkloadEvidence, subject: str) -> list[Correction]:
    """Correct the index of an array below which all have rows: it follows from them, if none is missing.

    Only cancelled tasks have rows beyond the first index without one.
    """
    if own.workload.array is None:
        return []
    found, replicas = own.workload.next_index, own.workload.replicas
    statuses = sorted((task.task_index, task.status) for task in own.tasks if task.current)
    indexes = [index for index, _ in statuses]
    complete = next((number for number, index in enumerate(indexes) if number != index), len(indexes))
    least = max((index + 1 for index, status in statuses if status != TaskStatus.CANCELLED), default=0)
    if least > complete or max(indexes, default=-1) >= replicas or len(set(indexes)) < len(indexes):
        raise Undecided(f"its tasks do not have the first {found} of {replicas} indexes")
    wanted = found if least <= found <= complete else complete
    cell = Cell("next_index", found, wanted, f"all indexes below {wanted} have a task")
    return changed(workloads, {"id": own.workload.id}, [cell], _INDEXES, subject)


def _status_corrections(own: WorkloadEvidence, subject: str) -> list[Correction]:
    workload = own.workload
    status = _status(own)
    ended = _ended(own, status.value)
    cells = [
        Cell("status", workload.status, status.value.value, status.why),
        Cell("ended_at", workload.ended_at, *ended),
    ]
    return changed(workloads, {"id": workload.id}, cells, STATUS, subject)


def _status(own: WorkloadEvidence) -> Decided[WorkloadStatus]:
    """Return the status that most sources state; the derivation from the tasks is one of them."""
    statements: dict[str, str] = {"workloads.status": own.workload.status}
    if own.history:
        statements["status_history"] = own.history[-1].new_status
    if own.last_event is not None:
        statements["events"] = own.last_event
    if own.record is not None and _all_ended(own):
        statements["workload_records"] = own.record.status
    votes = [Vote(source, status) for source, status in statements.items()]
    following = {status for status in statements.values() if _follows(own, status)}
    derived = {_derived(own, status) for status in statements.values() if status in WorkloadStatus.__members__}
    votes += [Vote("its tasks", status) for status in following or derived]
    if len(following) == 1:
        # A status that the tasks contradict is wrong, however many sources state it.
        votes = [vote for vote in votes if vote.value in following]
    if not following and len(derived) == 1 and not own.history:
        return Decided(WorkloadStatus(derived.pop()), "its tasks imply this status")
    found = majority("status", votes)
    return Decided(WorkloadStatus(found.value), found.why)


def _follows(own: WorkloadEvidence, status: str) -> bool:
    return status in WorkloadStatus.__members__ and _derived(own, status) == status


def _derived(own: WorkloadEvidence, current: str) -> str:
    """Return the status that follows from the tasks if the workload has this one."""
    workload, status = own.workload, WorkloadStatus(current)
    if is_workload_end(status) and _all_ended(own) and workload.ended_at is not None:
        return status.value
    if is_workload_end(status):
        status = WorkloadStatus.PENDING
    statuses = [
        counted_status(TaskStatus(task.status), requeue=task.requeue, stopping=workload.stopping)
        for task in own.tasks
        if task.current
    ]
    if workload.array is not None and len(statuses) < workload.replicas:
        statuses.append(deferred_status(ended=False, stopping=workload.stopping))
    found = derive(
        status,
        statuses,
        desired=workload.replicas,
        service=workload.kind == Kind.DEPLOYMENT,
        stopping=workload.stopping,
        array=workload.array is not None,
    )
    return found.value


def _all_ended(own: WorkloadEvidence) -> bool:
    return all(is_end(TaskStatus(task.status)) for task in own.tasks if task.current)


def _ended(own: WorkloadEvidence, status: WorkloadStatus) -> Decided[datetime | None]:
    if not is_workload_end(status):
        return Decided(None, f"a workload that is {status} has not ended")
    ends = [row.at for row in own.history if row.new_status == status]
    votes = [
        Vote("workloads.ended_at", own.workload.ended_at),
        Vote("status_history", ends[0] if ends else None),
        Vote("workload_records", None if own.record is None else own.record.ended_at),
    ]
    return majority("ended_at", [vote for vote in votes if vote.value is not None])


def _request_corrections(own: WorkloadEvidence, subject: str) -> list[Correction]:
    workload = own.workload
    stated: dict[str, Amounts | None] = {
        "workloads.requested_slots": amounts(workload.requested_slots),
        "workloads.template": requests_of_template(workload.template),
        "tasks.requested_slots": _common(
            amounts(t.requested_slots) for t in own.tasks if t.revision == workload.revision
        ),
    }
    if own.revision is not None:
        stated["workload_revisions.requested_slots"] = amounts(own.revision.requested_slots)
    found = _agreed(stated)
    cell = Cell("requested_slots", workload.requested_slots, found.value, found.why)
    return changed(workloads, {"id": workload.id}, [cell], _REQUEST, subject)


def _agreed(stated: Mapping[str, Amounts | None]) -> Decided[Amounts]:
    readable: dict[str, Any] = {name: tuple(sorted(own.items())) for name, own in stated.items() if own is not None}
    found = majority("requested_slots", [Vote(name, value) for name, value in readable.items()])
    return Decided(dict(found.value), found.why)


def _common(requests: Iterable[Amounts | None]) -> Amounts | None:
    """Return the request that all readable tasks agree on; None if they differ."""
    distinct: dict[tuple[tuple[str, int], ...], int] = defaultdict(int)
    for request in requests:
        if request is not None:
            distinct[tuple(sorted(request.items()))] += 1
    return dict(next(iter(distinct))) if len(distinct) == 1 else None
