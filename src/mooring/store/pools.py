"""Pools: sets of nodes with one scheduling policy, and which runtimes they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import pools


@dataclass(frozen=True, slots=True)
class Pool:
    id: UUID
    name: str
    profile: str
    runtimes: frozenset[str]
    simulated: bool


async def all_pools(connection: AsyncConnection) -> list[Pool]:
    rows = await connection.execute(select(pools).order_by(pools.c.name))
    return [Pool(row.id, row.name, row.profile, frozenset(row.runtimes), row.simulated) for row in rows]


async def by_name(connection: AsyncConnection, name: str) -> Pool | None:
    return next((pool for pool in await all_pools(connection) if pool.name == name), None)


async def ensure(
    connection: AsyncConnection,
    name: str,
    *,
    runtimes: Sequence[str],
    simulated: bool,
    now: datetime,
    profile: str = "locality",
) -> Pool:
    """The pool of this name, made if it is not there yet; what exists is left as it is."""
    found = await by_name(connection, name)
    if found is not None:
        return found
    values = {"profile": profile, "runtimes": sorted(runtimes), "simulated": simulated, "created_at": now}
    await insert_new(connection, pools, {"id": new_id(), "name": name, **values})
    made = await by_name(connection, name)
    assert made is not None
    return made
