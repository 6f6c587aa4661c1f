"""Scaling state of each pool: workloads that no nodes are requested for, and nodes that it can spare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.control import events
from mooring.store.core.batch_sql import among
from mooring.store.tables import nodes, pools, scaling_states


@dataclass(frozen=True, slots=True)
class Unmet:
    """Workload that lacks capacity although no more nodes are requested for it."""

    workload_id: UUID
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Advised:
    """Recommended step for a node that its pool can spare."""

    node_id: UUID
    node: str
    step: str
    since: datetime


@dataclass(frozen=True, slots=True)
class ScalingState:
    unmet: tuple[Unmet, ...] = ()
    advice: tuple[Advised, ...] = ()


NOTHING = ScalingState()


async def by_pool(connection: AsyncConnection) -> dict[str, ScalingState]:
    rows = await connection.execute(
        select(pools.c.name, scaling_states.c.unmet, scaling_states.c.advice)
        .join(pools, pools.c.id == scaling_states.c.pool_id)
        .order_by(pools.c.name)
    )
    return {row.name: msgspec.convert({"unmet": row.unmet, "advice": row.advice}, ScalingState) for row in rows}


async def save(
    connection: AsyncConnection, states: Mapping[str, ScalingState], *, now: datetime, term: int
) -> list[Advised]:
    """Replace the state of these pools; return the new advice, for which events are appended."""
    ids = {row.name: row.id for row in await connection.execute(select(pools.c.name, pools.c.id))}
    before = await by_pool(connection)
    new: list[Advised] = []
    for pool, state in states.items():
        if pool not in ids:
            continue
        known = {(each.node_id, each.step) for each in before.get(pool, NOTHING).advice}
        new += [each for each in state.advice if (each.node_id, each.step) not in known]
        await connection.execute(delete(scaling_states).where(scaling_states.c.pool_id == ids[pool]))
        if state != NOTHING:
            encoded: dict[str, Any] = msgspec.to_builtins(state)
            await connection.execute(insert(scaling_states).values(pool_id=ids[pool], updated_at=now, **encoded))
    advised = {each.node_id: each for each in new}
    rows = await connection.execute(select(nodes.c.id, nodes.c.generation).where(among(nodes.c.id, list(advised))))
    new_events = [
        events.NewEvent("node", row.id, row.generation, "advised", row.id, details={"step": advised[row.id].step})
        for row in rows
    ]
    await events.append(connection, new_events, now, term)
    return new
