"""The scaling state of pools: requests for nodes, workloads that no nodes are requested for, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.nodes.node_templates import ScaleRequest
from mooring.store.core.batch_sql import among
from mooring.store.scaling import scale_requests, scaling_states
from mooring.store.scaling.scaling_states import Advised, Unmet
from mooring.store.tables import workloads


@dataclass(frozen=True, slots=True)
class ScalingRow:
    requests: Sequence[ScaleRequest]
    """Requests, newest first."""
    unmet: Sequence[tuple[str, Unmet]]
    advice: Sequence[tuple[str, Advised]]
    """Pairs of pool and advice; `unmet` has pairs of pool and workload."""
    names: dict[UUID, str]
    """Names of the workloads in `unmet`."""


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
