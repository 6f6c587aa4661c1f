"""Idle sessions: the sessions to warn or end for being idle, and the record of their warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.durations import format_duration
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.workloads.lifetime.idleness import Idleness, Step
from mooring.store.accounting import measured_usage
from mooring.store.commit.history import ChangeLog
from mooring.store.control import events
from mooring.store.core.batch_sql import Writes, among, by_other_index
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, workloads


@dataclass(frozen=True, slots=True)
class Session:
    """Running session with its due step."""

    workload_id: UUID
    timeout_seconds: int
    task_ids: Sequence[UUID]
    step: Step
    known_until: datetime


async def due(connection: AsyncConnection, now: datetime) -> list[Session]:
    """Return the sessions to warn, to end, or to clear of an earlier warning."""
    rows = (await connection.execute(_running())).all()
    sessions = [list(own) for _, own in groupby(rows, key=attrgetter("workload_id"))]
    # Most sessions are in use even if their last measurement is ignored, and need no query for it.
    candidates = [own for own in sessions if _runs(own) and _idleness(own).step(now) is not Step.NONE]
    known = await measured_usage.last_measured(connection, [row.id for own in candidates for row in own])
    found = (_session(own, known) for own in candidates if all(row.id in known for row in own))
    return [session for session in found if session.step is not Step.NONE]


@cache
def _running() -> Select[Any]:
    return (
        select(
            tasks.c.id,
            tasks.c.workload_id,
            tasks.c.status,
            tasks.c.started_at,
            tasks.c.active_at,
            workloads.c.idle_timeout_seconds,
            workloads.c.idle_warned_at,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            workloads.c.idle_timeout_seconds.is_not(None),
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
            workloads.c.status == WorkloadStatus.RUNNING,
            tasks.c.current,
            tasks.c.ended_at.is_(None),
        )
        .order_by(tasks.c.workload_id, tasks.c.id)
    )


def _runs(rows: Sequence[AnyRow]) -> bool:
    return all(row.status == TaskStatus.RUNNING for row in rows)


def _idleness(rows: Sequence[AnyRow]) -> Idleness:
    since = max(row.active_at or row.started_at for row in rows)
    return Idleness(since, timedelta(seconds=rows[0].idle_timeout_seconds), rows[0].idle_warned_at)


def _session(rows: Sequence[AnyRow], known: Mapping[UUID, datetime]) -> Session:
    known_until = min(known[row.id] for row in rows)
    return Session(
        rows[0].workload_id,
        rows[0].idle_timeout_seconds,
        [row.id for row in rows],
        _idleness(rows).step(known_until),
        known_until,
    )


async def mark(
    connection: AsyncConnection, sessions: Sequence[Session], *, actor: str, now: datetime, term: int | None
) -> int:
    """Record that these sessions are idle and will end, or are active again; return the number recorded."""
    marked = {session.workload_id: session for session in sessions}
    rows = await connection.execute(
        select(workloads.c.id, workloads.c.status, workloads.c.version)
        .where(among(workloads.c.id, marked.keys()), workloads.c.status == WorkloadStatus.RUNNING)
        .order_by(workloads.c.id)
        .with_for_update()
    )
    found = rows.all()
    log = ChangeLog(actor, now, term)
    for row in found:
        session = marked[row.id]
        warned = session.step is Step.WARN
        # Never before the last measurement, even if this server's clock is behind.
        warned_at = max(now, session.known_until) if warned else None
        await connection.execute(
            update(workloads)
            .where(workloads.c.id == row.id)
            .values(idle_warned_at=warned_at, updated_at=now, version=row.version + 1)
        )
        kind = "idle-warning" if warned else "active-again"
        words = f"Its tasks are idle; after {format_duration(session.timeout_seconds)} of idleness it ends"
        log.add_status(
            "workload", row.id, row.id, row.status, row.status, words if warned else "Its tasks are active again"
        )
        log.add_event(events.NewEvent("workload", row.id, row.version + 1, kind, None, row.id))
    await _notify_nodes(connection, [row.id for row in found], marked, log)
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)
    return len(found)


async def _notify_nodes(
    connection: AsyncConnection, ids: Sequence[UUID], marked: dict[UUID, Session], log: ChangeLog
) -> None:
    """Append the events on which agents signal the tasks of workloads with a warning signal."""
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.version, tasks.c.node_id, tasks.c.workload_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            among(workloads.c.id, ids),
            workloads.c.warning_signal.is_not(None),
            by_other_index(tasks.c.status) == TaskStatus.RUNNING,
        )
    )
    for row in rows:
        kind = "idle-warning" if marked[row.workload_id].step is Step.WARN else "active-again"
        log.add_event(events.NewEvent("task", row.id, row.version, kind, row.node_id, row.workload_id))
