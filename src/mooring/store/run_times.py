"""How long the work of a tenant usually runs: what pools go by that expect running work to end as others of it did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import tasks, workloads

_LOOKBACK = timedelta(days=28)
_NEWEST = 50
"""Runs of a user and a type that are looked at."""
_FEWEST = 5
"""Fewer runs of a kind say nothing."""
_SHARE = 0.9
"""So many of them did not take longer."""


class Kind(NamedTuple):
    """Runs that are alike: those of one user, of one type, with limits of about one size."""

    user_id: UUID
    type: str
    limit_bits: int
    """Limits are of one size if they have as many binary digits; 0: no limit."""

    @classmethod
    def of(cls, user_id: UUID, type: str, limit_seconds: int | None) -> Kind:
        return cls(user_id, type, (limit_seconds or 0).bit_length())


RunTimes = Mapping[Kind, timedelta]


async def usual(connection: AsyncConnection, pool_id: UUID, now: datetime) -> dict[Kind, timedelta]:
    """By kind the time in which nine of ten of the last runs in a pool were over."""
    own, whose = tasks.c, workloads.c
    newest = func.row_number().over(partition_by=(whose.user_id, whose.type), order_by=own.ended_at.desc())
    runs = (
        select(
            whose.user_id, whose.type, whose.time_limit_seconds, own.started_at, own.ended_at, newest.label("number")
        )
        .join(workloads, whose.id == own.workload_id)
        .where(
            whose.pool_id == pool_id,
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
    return {
        kind: sorted(times)[ceil(_SHARE * len(times)) - 1] for kind, times in taken.items() if len(times) >= _FEWEST
    }
