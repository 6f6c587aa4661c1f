"""Who has to leave a node: what is on draining nodes and beside taints that it does not tolerate, now and later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, Text, cast, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.constraints import Effect
from mooring.model.eviction import NODE_DRAINED, NOT_TOLERATED, eviction
from mooring.model.lifecycle import OCCUPYING, SILENT, TaskStatus
from mooring.model.reasons import Reason
from mooring.model.retries import comes_again
from mooring.model.workloads import Kind
from mooring.store import events, taints
from mooring.store.chunks import chunks
from mooring.store.constraints import decode_constraints
from mooring.store.history import Journal
from mooring.store.sets import Writes
from mooring.store.tables import nodes, tasks, workloads
from mooring.store.types import AnyRow

_BY = "draining"
_STAYING = [status for status in OCCUPYING if status is not TaskStatus.TERMINATING]


@dataclass(frozen=True, slots=True)
class Leaver:
    """A task that has to leave its node now."""

    task_id: UUID
    workload_id: UUID
    status: TaskStatus
    reason: Reason
    service: bool
    """Another replica takes its place at once."""
    again: bool
    """Of a session: it waits again when it has left."""
    patient: bool
    """It stays where its workload can spare no running task."""


@dataclass(frozen=True, slots=True)
class Look:
    leavers: list[Leaver]
    drained: list[UUID]
    """Draining nodes of which nobody was told yet that nothing is left there."""
    next_at: datetime | None
    """When somebody else has to leave, by time alone."""


async def look(connection: AsyncConnection, now: datetime) -> Look:
    found = await connection.execute(
        select(nodes).where(
            # What is silent is left alone: nobody could tell it to go.
            nodes.c.status.not_in(list(SILENT)),
            or_(nodes.c.draining, cast(nodes.c.taints, Text).like(f'%"{Effect.NO_EXECUTE}"%')),
        )
    )
    by_id = {row.id: row for row in found}
    leavers: list[Leaver] = []
    later: list[datetime] = []
    occupied: set[UUID] = set()
    together: dict[UUID, Reason] = {}
    for task in await _tasks_on(connection, list(by_id)):
        occupied.add(task.node_id)
        if task.status not in _STAYING:
            continue
        departures = list(_departures(task, by_id[task.node_id], now))
        due = [departure for departure in departures if departure.at <= now]
        later += [departure.at for departure in departures if departure.at > now]
        if due:
            first = min(due, key=lambda departure: departure.patient)
            leavers.append(_leaver(task, first.reason, patient=first.patient))
            if leavers[-1].again and task.array is None and task.replicas > 1:
                together[task.workload_id] = first.reason
    known = {leaver.task_id for leaver in leavers}
    leavers += [each for each in await _companions(connection, together) if each.task_id not in known]
    empty = [row.id for row in by_id.values() if row.draining and row.drained_at is None and row.id not in occupied]
    return Look(leavers, empty, min(later, default=None))


class _Departure(NamedTuple):
    at: datetime
    reason: Reason
    patient: bool = False


def _departures(task: AnyRow, node: AnyRow, now: datetime) -> Iterator[_Departure]:
    """Why and when a task has to leave its node."""
    if node.draining:
        reason = Reason(NODE_DRAINED, _drained_because(node.name, node.drain_reason), _BY, "never")
        # Where a place is only kept, nothing has to end; of a deployment another replica can take over.
        if task.status == TaskStatus.RESERVED or task.kind == Kind.DEPLOYMENT:
            yield _Departure(now, reason, patient=task.status == TaskStatus.RUNNING)
        if node.drain_until is not None:
            yield _Departure(node.drain_until, reason)
    tolerations = decode_constraints(task.constraints).tolerations
    standing = [(each.taint, each.since) for each in taints.standing(node)]
    if (evicted := eviction(standing, tolerations, task.scheduled_at or task.created_at)) is not None:
        at, taint = evicted
        yield _Departure(at, Reason(NOT_TOLERATED, f"Node {node.name} has the taint {taint}", _BY, "never"))


def _leaver(task: AnyRow, reason: Reason, *, patient: bool = False) -> Leaver:
    status, service = TaskStatus(task.status), task.kind == Kind.DEPLOYMENT
    again = not service and comes_again(status, type=task.type)
    return Leaver(task.id, task.workload_id, status, reason, service, again, patient)


async def _tasks_on(connection: AsyncConnection, node_ids: Sequence[UUID]) -> list[AnyRow]:
    """All that still counts on these nodes."""
    rows: list[AnyRow] = []
    for part in chunks(node_ids):
        rows += await connection.execute(_tasks().where(tasks.c.node_id.in_(part), tasks.c.freed_at.is_(None)))
    return rows


async def _companions(connection: AsyncConnection, together: Mapping[UUID, Reason]) -> list[Leaver]:
    """The other tasks of sessions that work together: they start again with the one that has to leave."""
    rows: list[AnyRow] = []
    for part in chunks(sorted(together)):
        rows += await connection.execute(_tasks().where(tasks.c.workload_id.in_(part), tasks.c.status.in_(_STAYING)))
    return [_leaver(task, together[task.workload_id]) for task in rows]


def _tasks() -> Select[Any]:
    own, of = tasks.c, workloads.c
    return (
        select(own.id, own.workload_id, own.node_id, own.status, own.scheduled_at, own.created_at)
        .add_columns(of.kind, of.type, of.array, of.replicas, of.constraints)
        .join(workloads, of.id == own.workload_id)
        .order_by(own.id)
    )


async def note_drained(
    connection: AsyncConnection, node_ids: Sequence[UUID], *, actor: str, now: datetime, term: int
) -> list[str]:
    """Say once of each of these nodes that nothing is left on it; their names."""
    journal = Journal(actor, now, term)
    names: list[str] = []
    for node_id in sorted(node_ids):
        rows = await connection.execute(
            update(nodes)
            .where(nodes.c.id == node_id, nodes.c.draining, nodes.c.drained_at.is_(None))
            .values(drained_at=now)
            .returning(nodes.c.name, nodes.c.status, nodes.c.generation)
        )
        for row in rows:
            names.append(row.name)
            journal.note("node", node_id, None, row.status, row.status, "Drained: nothing is left on it")
            journal.tell(events.NewEvent("node", node_id, row.generation, "drained", node_id))
    writes = Writes.on(connection)
    journal.write(writes)
    await writes.make(connection)
    return names


async def warn(
    connection: AsyncConnection, node_id: UUID, until: datetime, reason: str | None, *, actor: str, now: datetime
) -> None:
    """Tell those whose sessions are on a node that is drained by when they end."""
    node = (await connection.execute(select(nodes.c.name).where(nodes.c.id == node_id))).one()
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.version, tasks.c.workload_id, workloads.c.status)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(tasks.c.node_id == node_id, tasks.c.status.in_(_STAYING), workloads.c.kind == Kind.SESSION)
        .order_by(tasks.c.id)
    )
    journal = Journal(actor, now)
    at = until.isoformat(timespec="seconds")
    text = f"{_drained_because(node.name, reason)}; what is not done ends at {at}"
    details = {"until": at, "reason": text}
    for task in rows:
        journal.note("workload", task.workload_id, task.workload_id, task.status, task.status, text)
        journal.tell(events.NewEvent("task", task.id, task.version, "warned", node_id, task.workload_id, details))
    writes = Writes.on(connection)
    journal.write(writes)
    await writes.make(connection)


def _drained_because(name: str, reason: str | None) -> str:
    return f"Node {name} is drained: {reason}" if reason else f"Node {name} is drained"
