"""Predicted against actual starts of recent workloads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.tables import workloads

PERIOD = timedelta(days=7)
_MAX_WORKLOADS = 1000


class PredictedStart(NamedTuple):
    """The first planned or estimated start of a workload, its placement, and how often the start was moved."""

    predicted_at: datetime
    placed_at: datetime
    moves: int

    @property
    def late_seconds(self) -> float:
        return (self.placed_at - self.predicted_at).total_seconds()


async def recent(connection: AsyncConnection, now: datetime) -> list[PredictedStart]:
    """Return the workloads that had a predicted start and were placed in the last days, the newest first."""
    rows = await connection.execute(
        select(workloads.c.first_start_at, workloads.c.placed_at, workloads.c.start_moves)
        .where(workloads.c.placed_at > now - PERIOD, workloads.c.first_start_at.is_not(None))
        .order_by(workloads.c.placed_at.desc())
        .limit(_MAX_WORKLOADS)
    )
    return [PredictedStart(*row) for row in rows]
