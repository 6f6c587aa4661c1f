"""Usual run times of tenants' workloads, for pools that expect running tasks to end like earlier ones.

Estimated starts use them in all pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.resources.devices import DeviceShare, shares_of
from mooring.model.resources.slots import Amounts
from mooring.store.tables import tasks, workloads

_LOOKBACK = timedelta(days=28)
_NEWEST = 50
"""Number of latest runs per user and type that are considered."""
_FEWEST = 5
"""Minimum number of runs of a kind; fewer are no evidence."""
_SHARE = 0.9
"""Fraction of the runs that took no longer than the usual time."""


class Kind(NamedTuple):
    """Group of similar runs: those of one user and one type, with time limits of about the same size."""

    user_id: UUID
    type: str
    limit_bits: int
    """Number of binary digits of the time limit, by which limits are grouped; 0 for no limit."""

    @classmethod
    def of(cls, user_id: UUID, type: str, limit_seconds: int | None) -> Kind:
        return cls(user_id, type, (limit_seconds or 0).bit_length())


class Running(NamedTuple):
    """Running task, with the resources it frees when it ends."""

    task_id: UUID
    node_id: UUID
    kind: Kind
    started_at: datetime
    request: Amounts
    devices: tuple[DeviceShare, ...]


RunTimes = Mapping[Kind, timedelta]
History = Mapping[Kind, Sequence[timedelta]]
"""Durations of the last runs of each kind, shortest first."""


async def usual(connection: AsyncConnection, pool_id: UUID, now: datetime) -> dict[Kind, timedelta]:
    """Return by kind the duration within which nine of ten of the last runs in a pool ended."""
    history = await last_runs(connection, pool_id, now)
    return {kind: times[ceil(_SHARE * len(times)) - 1] for kind, times in history.items()}


async def last_runs(connection: AsyncConnection, pool_id: UUID, now: datetime) -> dict[Kind, list[timedelta]]:
    """Return by kind the durations of the last runs in a pool, shortest first; kinds with few runs are left out."""
    own, workload = tasks.c, workloads.c
    newest = func.row_number().over(partition_by=(workload.user_id, workload.type), order_by=own.ended_at.desc())
    runs = (
        select(
            workload.user_id,
            workload.type,
            workload.time_limit_seconds,
            own.started_at,
            own.ended_at,
            newest.label("number"),
        )
        .join(workloads, workload.id == own.workload_id)
        .where(
            workload.pool_id == pool_id,
            own.ended_at >= now - _LOOKBACK,
            own.started_at.is_not(None),
            own.status.in_([TaskStatus.SUCCEEDED, TaskStatus.FAILED]),
        )
        .subquery()
    )
    taken: dict[Kind, list[timedelta]] = {}
    for row in await connection.execute(select(runs).where(runs.c.number <= _NEWEST)):
        kind = Kind.of(row.user_id, row.type, row.time_limit_seconds)
        taken.setdefault(kind, []).append(row.ended_at - row.started_at)
    return {kind: sorted(times) for kind, times in taken.items() if len(times) >= _FEWEST}


async def running(connection: AsyncConnection, pool_id: UUID, kinds: History) -> list[Running]:
    """Return the running tasks of these kinds in a pool, except those inside a timeslot."""
    query = (
        select(
            tasks.c.id,
            tasks.c.node_id,
            tasks.c.started_at,
            tasks.c.requested_slots,
            tasks.c.devices,
            workloads.c.user_id,
            workloads.c.type,
            workloads.c.time_limit_seconds,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            workloads.c.pool_id == pool_id,
            workloads.c.timeslot_id.is_(None),
            tasks.c.status == TaskStatus.RUNNING,
            tasks.c.started_at.is_not(None),
        )
    )
    found: list[Running] = []
    for row in await connection.execute(query):
        kind = Kind.of(row.user_id, row.type, row.time_limit_seconds)
        if kind in kinds:
            shares = tuple(shares_of(row.devices))
            found.append(Running(row.id, row.node_id, kind, row.started_at, row.requested_slots, shares))
    return found


def expected(times: Sequence[timedelta], elapsed: timedelta = timedelta()) -> timedelta | None:
    """Return the mean of the durations longer than the elapsed time, or None if there are none."""
    longer = [time for time in times if time > elapsed]
    return sum(longer, timedelta()) / len(longer) if longer else None
