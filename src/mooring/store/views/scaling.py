"""What people are told about the size of pools: requests for nodes, whom they are not asked for, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.templates import ScaleRequest
from mooring.store import scale_requests, scaling_states
from mooring.store.scaling_states import Advised, Unmet
from mooring.store.sets import among
from mooring.store.tables import workloads


@dataclass(frozen=True, slots=True)
class ScalingRow:
    requests: Sequence[ScaleRequest]
    """The newest first."""
    unmet: Sequence[tuple[str, Unmet]]
    advice: Sequence[tuple[str, Advised]]
    """Each with its pool."""
    names: dict[UUID, str]
    """Of the workloads that no nodes are asked for."""


async def scaling(connection: AsyncConnection, *, pool: str | None, limit: int) -> ScalingRow:
    states = await scaling_states.by_pool(connection)
    if pool is not None:
        states = {name: state for name, state in states.items() if name == pool}
    unmet = [(name, each) for name, state in states.items() for each in state.unmet]
    advice = [(name, each) for name, state in states.items() for each in state.advice]
    ids = [each.workload_id for _, each in unmet]
    rows = await connection.execute(select(workloads.c.id, workloads.c.name).where(among(workloads.c.id, ids)))
    requests = await scale_requests.newest(connection, pool=pool, limit=limit)
    return ScalingRow(requests, unmet, advice, {row.id: row.name for row in rows})
