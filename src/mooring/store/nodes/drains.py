"""Tasks that must leave a node, now or later, because of a drain, a taint they do not tolerate, or a booking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, Text, cast, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, SILENT, TaskStatus
from mooring.model.nodes.eviction import NODE_DRAINED, NOT_TOLERATED, eviction
from mooring.model.reasons import Reason
from mooring.model.workloads.constraints import Effect
from mooring.model.workloads.lifetime.retries import is_requeued_after_eviction
from mooring.model.workloads.workload import Kind
from mooring.store.commit.history import ChangeLog
from mooring.store.control import events
from mooring.store.core.batch_sql import Writes, among
from mooring.store.core.chunks import chunks
from mooring.store.core.constraint_columns import decode_constraints
from mooring.store.core.types import AnyRow
from mooring.store.nodes import taints
from mooring.store.reservations import booking_departures
from mooring.store.reservations.booking_departures import Departure
from mooring.store.tables import nodes, status_history, tasks, workloads

_BY = "draining"
_STAYING = [status for status in OCCUPYING if status is not TaskStatus.TERMINATING]


@dataclass(frozen=True, slots=True)
class DepartingTask:
    """Task that must leave its node now."""

    task_id: UUID
    workload_id: UUID
    status: TaskStatus
    reason: Reason
    service: bool
    """Part of a deployment: a replacement is created at once."""
    again: bool
    """Part of a session that is requeued after the task has left."""
    patient: bool
    """Evicted only if its workload can spare a running task."""


class DepartureWarning(NamedTuple):
    """Session task that must leave later, with the message for its owner."""

    task: AnyRow
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class DrainStatus:
    departing: list[DepartingTask]
    drained: list[UUID]
    """Draining nodes that are empty and not yet reported as drained."""
    next_at: datetime | None
    """Time of the next departure that depends on time alone."""
    warnings: list[DepartureWarning]
    """Warnings for sessions that must leave for a booking and have not been warned yet."""
    watching: bool
    """Tasks have to leave some node, because of its state or of a booking."""


_LOSING_TASKS = select(nodes).where(
    # Silent nodes are skipped: their agents cannot be notified.
    nodes.c.status.not_in(list(SILENT)),
    or_(nodes.c.draining, cast(nodes.c.taints, Text).like(f'%"{Effect.NO_EXECUTE}"%')),
)


async def find_departures(connection: AsyncConnection, now: datetime) -> DrainStatus:
    by_id = {row.id: row for row in await connection.execute(_LOSING_TASKS)}
    booked = await booking_departures.departures(connection, now)
    departing: list[DepartingTask] = []
    later: list[datetime] = [] if booked.next_at is None else [booked.next_at]
    occupied: set[UUID] = set()
    gangs: dict[UUID, Reason] = {}
    coming: list[DepartureWarning] = []
    for task in await _tasks_on(connection, sorted(by_id.keys() | booked.nodes)):
        occupied.add(task.node_id)
        if task.status not in _STAYING:
            continue
        departures = list(booked.of_task.get(task.id, ()))
        if (node := by_id.get(task.node_id)) is not None:
            departures += _departures(task, node, now)
        if task.kind == Kind.SESSION:
            coming += [_warning(task, departure) for departure in departures[:1] if task.id in booked.of_task]
        due = [departure for departure in departures if departure.at <= now]
        later += [departure.at for departure in departures if departure.at > now]
        if due:
            first = min(due, key=lambda departure: departure.patient)
            departing.append(_departing(task, first.reason, patient=first.patient))
            if departing[-1].again and task.array is None and task.replicas > 1:
                gangs[task.workload_id] = first.reason
    known = {task.task_id for task in departing}
    departing += [each for each in await _companions(connection, gangs) if each.task_id not in known]
    empty = [row.id for row in by_id.values() if row.draining and row.drained_at is None and row.id not in occupied]
    coming = [each for each in coming if each.at > now]
    warnings = await _not_yet_sent(connection, coming)
    return DrainStatus(departing, empty, min(later, default=None), warnings, bool(by_id or booked.nodes))


def _warning(task: AnyRow, departure: Departure) -> DepartureWarning:
    return DepartureWarning(task, departure.at, _with_deadline(departure.reason.message, departure.at))


async def _not_yet_sent(connection: AsyncConnection, coming: Sequence[DepartureWarning]) -> list[DepartureWarning]:
    """Return the warnings that are not in their workloads' history yet."""
    if not coming:
        return []
    own = status_history.c
    ids = sorted({each.task.workload_id for each in coming})
    rows = await connection.execute(select(own.object_id, own.reason).where(among(own.workload_id, ids)))
    sent = {(row.object_id, row.reason) for row in rows}
    return [each for each in coming if (each.task.workload_id, each.text) not in sent]


def _departures(task: AnyRow, node: AnyRow, now: datetime) -> Iterator[Departure]:
    """Yield the reasons for which a task must leave its node, each with its time."""
    if node.draining:
        reason = Reason(NODE_DRAINED, _drained_because(node.name, node.drain_reason), _BY, "never")
        # A reservation has nothing to end, and another replica can take over from a deployment's task.
        if task.status == TaskStatus.RESERVED or task.kind == Kind.DEPLOYMENT:
            yield Departure(now, reason, patient=task.status == TaskStatus.RUNNING)
        if node.drain_until is not None:
            yield Departure(node.drain_until, reason)
    tolerations = decode_constraints(task.constraints).tolerations
    timed = [(each.taint, each.since) for each in taints.timed_taints(node)]
    if (evicted := eviction(timed, tolerations, task.scheduled_at or task.created_at)) is not None:
        at, taint = evicted
        yield Departure(at, Reason(NOT_TOLERATED, f"Node {node.name} has the taint {taint}", _BY, "never"))


def _departing(task: AnyRow, reason: Reason, *, patient: bool = False) -> DepartingTask:
    status, service = TaskStatus(task.status), task.kind == Kind.DEPLOYMENT
    again = not service and is_requeued_after_eviction(status, type=task.type)
    return DepartingTask(task.id, task.workload_id, status, reason, service, again, patient)


async def _tasks_on(connection: AsyncConnection, node_ids: Sequence[UUID]) -> list[AnyRow]:
    """Return all tasks on these nodes whose resources are not freed."""
    rows: list[AnyRow] = []
    for part in chunks(node_ids):
        rows += await connection.execute(_tasks().where(tasks.c.node_id.in_(part), tasks.c.freed_at.is_(None)))
    return rows


async def _companions(connection: AsyncConnection, gangs: Mapping[UUID, Reason]) -> list[DepartingTask]:
    """Return the other tasks of these multi-task sessions: they restart together with the departing task."""
    rows: list[AnyRow] = []
    for part in chunks(sorted(gangs)):
        rows += await connection.execute(_tasks().where(tasks.c.workload_id.in_(part), tasks.c.status.in_(_STAYING)))
    return [_departing(task, gangs[task.workload_id]) for task in rows]


def _tasks() -> Select[Any]:
    own, of = tasks.c, workloads.c
    return (
        select(own.id, own.workload_id, own.node_id, own.status, own.scheduled_at, own.created_at)
        .add_columns(of.kind, of.type, of.array, of.replicas, of.constraints)
        .add_columns(own.version, of.status.label("workload_status"))
        .join(workloads, of.id == own.workload_id)
        .order_by(own.id)
    )


async def note_drained(
    connection: AsyncConnection, node_ids: Sequence[UUID], *, actor: str, now: datetime, term: int
) -> list[str]:
    """Record each of these nodes as drained, once; return the names of those newly recorded."""
    log = ChangeLog(actor, now, term)
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
            log.add_status("node", node_id, None, row.status, row.status, "Drained: no task is left on it")
            log.add_event(events.NewEvent("node", node_id, row.generation, "drained", node_id))
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)
    return names


async def warn_sessions(
    connection: AsyncConnection, node_id: UUID, until: datetime, reason: str | None, *, actor: str, now: datetime
) -> None:
    """Warn the owners of sessions on a draining node when their sessions end."""
    node = (await connection.execute(select(nodes.c.name).where(nodes.c.id == node_id))).one()
    here = (tasks.c.node_id == node_id, tasks.c.status.in_(_STAYING), workloads.c.kind == Kind.SESSION)
    text = _with_deadline(_drained_because(node.name, reason), until)
    rows = await connection.execute(_tasks().where(*here))
    await send_warnings(connection, [DepartureWarning(task, until, text) for task in rows], actor=actor, now=now)


async def send_warnings(
    connection: AsyncConnection,
    warnings: Sequence[DepartureWarning],
    *,
    actor: str,
    now: datetime,
    term: int | None = None,
) -> None:
    """Notify the owners of sessions when their sessions end, and why."""
    log = ChangeLog(actor, now, term)
    for task, at, text in warnings:
        status, workload_id = task.workload_status, task.workload_id
        details = {"until": at.isoformat(timespec="seconds"), "reason": text}
        log.add_status("workload", workload_id, workload_id, status, status, text)
        log.add_event(events.NewEvent("task", task.id, task.version, "warned", task.node_id, workload_id, details))
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)


def _with_deadline(why: str, at: datetime) -> str:
    return f"{why}; remaining work is stopped at {at.isoformat(timespec='seconds')}"


def _drained_because(name: str, reason: str | None) -> str:
    return f"Node {name} is drained: {reason}" if reason else f"Node {name} is drained"
