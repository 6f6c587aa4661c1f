"""Sessions that end when nobody uses them: how long each is idle, and that its owner was told."""

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

from mooring.model.durations import format_duration
from mooring.model.idleness import Idleness, Step
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.store import events, measured
from mooring.store.history import Journal
from mooring.store.sets import Writes, among
from mooring.store.tables import tasks, workloads
from mooring.store.types import AnyRow


@dataclass(frozen=True, slots=True)
class Session:
    """One that runs, with what is due for it."""

    workload_id: UUID
    timeout_seconds: int
    task_ids: Sequence[UUID]
    step: Step
    known_until: datetime


async def due(connection: AsyncConnection, now: datetime) -> list[Session]:
    """The sessions that are to be warned, ended, or no longer held to be idle."""
    rows = (await connection.execute(_running())).all()
    sessions = [list(own) for _, own in groupby(rows, key=attrgetter("workload_id"))]
    # Most are in use, whatever was measured last.
    candidates = [own for own in sessions if _runs(own) and _idleness(own).step(now) is not Step.NONE]
    known = await measured.last_measured(connection, [row.id for own in candidates for row in own])
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
    """Tell that these are idle and will end, or that they are used again; how many were told."""
    marked = {session.workload_id: session for session in sessions}
    rows = await connection.execute(
        select(workloads.c.id, workloads.c.status, workloads.c.version)
        .where(among(workloads.c.id, marked.keys()), workloads.c.status == WorkloadStatus.RUNNING)
        .order_by(workloads.c.id)
        .with_for_update()
    )
    found = rows.all()
    journal = Journal(actor, now, term)
    for row in found:
        session = marked[row.id]
        warned = session.step is Step.WARN
        # Not before what is known of it, whoever's clock is behind.
        warned_at = max(now, session.known_until) if warned else None
        await connection.execute(
            update(workloads)
            .where(workloads.c.id == row.id)
            .values(idle_warned_at=warned_at, updated_at=now, version=row.version + 1)
        )
        kind = "idle-warning" if warned else "active-again"
        words = f"Its tasks do nothing; after {format_duration(session.timeout_seconds)} of that it ends"
        journal.note(
            "workload", row.id, row.id, row.status, row.status, words if warned else "Its tasks do something again"
        )
        journal.tell(events.NewEvent("workload", row.id, row.version + 1, kind, None, row.id))
    await _tell_nodes(connection, [row.id for row in found], marked, journal)
    writes = Writes.on(connection)
    journal.write(writes)
    await writes.make(connection)
    return len(found)


async def _tell_nodes(
    connection: AsyncConnection, ids: Sequence[UUID], marked: dict[UUID, Session], journal: Journal
) -> None:
    """Agents send a signal to the tasks of those that have asked for one."""
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.version, tasks.c.node_id, tasks.c.workload_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            among(workloads.c.id, ids), workloads.c.warning_signal.is_not(None), tasks.c.status == TaskStatus.RUNNING
        )
    )
    for row in rows:
        kind = "idle-warning" if marked[row.workload_id].step is Step.WARN else "active-again"
        journal.tell(events.NewEvent("task", row.id, row.version, kind, row.node_id, row.workload_id))
