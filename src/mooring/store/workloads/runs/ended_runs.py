"""Ended runs of a pool, in the order in which they ended, to learn run times from."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.lifetime.runs import EndedRun
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, workloads
from mooring.store.workloads.runs.job_features import FEATURES, features_of

_LOOKBACK = timedelta(days=28)


class Position(NamedTuple):
    """The end of a run in the order of all runs."""

    ended_at: datetime
    task_id: UUID


async def newest(
    connection: AsyncConnection, pool_id: UUID, now: datetime, number: int
) -> list[tuple[Position, EndedRun]]:
    """Return the newest runs of the last four weeks, at most `number`, oldest first."""
    own = tasks.c
    query = _RUNS.where(workloads.c.pool_id == pool_id, own.ended_at >= now - _LOOKBACK)
    rows = await connection.execute(query.order_by(own.ended_at.desc(), own.id.desc()).limit(number))
    return [_run(row) for row in reversed(rows.all())]


async def after(
    connection: AsyncConnection, pool_id: UUID, position: Position, number: int
) -> list[tuple[Position, EndedRun]]:
    """Return the next runs after a position, at most `number`, oldest first."""
    own = tasks.c
    later = or_(own.ended_at > position.ended_at, and_(own.ended_at == position.ended_at, own.id > position.task_id))
    query = _RUNS.where(workloads.c.pool_id == pool_id, later)
    rows = await connection.execute(query.order_by(own.ended_at, own.id).limit(number))
    return [_run(row) for row in rows]


_RUNS = (
    select(tasks.c.id, tasks.c.started_at, tasks.c.ended_at, *FEATURES)
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .where(
        tasks.c.started_at.is_not(None),
        tasks.c.status.in_([TaskStatus.SUCCEEDED, TaskStatus.FAILED]),
        # The tasks of a gang are one run.
        or_(workloads.c.gang.is_(False), tasks.c.task_index == 0),
    )
)


def _run(row: AnyRow) -> tuple[Position, EndedRun]:
    seconds = round((row.ended_at - row.started_at).total_seconds())
    return Position(row.ended_at, row.id), EndedRun(features_of(row), max(seconds, 1))
