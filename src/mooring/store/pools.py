"""Pools: sets of nodes with one scheduling policy, and which runtimes they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import NotFound
from mooring.store import events
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import pools

Policy = tuple[str, tuple[tuple[str, int], ...] | None]
"""The name of a profile, and the weights of scorers in place of its own."""


@dataclass(frozen=True, slots=True)
class Pool:
    id: UUID
    name: str
    profile: str
    runtimes: frozenset[str]
    simulated: bool
    weights: tuple[tuple[str, int], ...] | None = None

    @property
    def policy(self) -> Policy:
        return self.profile, self.weights


async def all_pools(connection: AsyncConnection) -> list[Pool]:
    rows = await connection.execute(select(pools).order_by(pools.c.name))
    return [
        Pool(row.id, row.name, row.profile, frozenset(row.runtimes), row.simulated, _weights(row.weights))
        for row in rows
    ]


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


async def set_policy(
    connection: AsyncConnection, name: str, profile: str, weights: Mapping[str, int] | None, now: datetime
) -> None:
    """How the pool's workloads are placed from the next pass on; the caller has checked that it can be meant."""
    row = (await connection.execute(select(pools).where(pools.c.name == name).with_for_update())).one_or_none()
    if row is None:
        raise NotFound(f"there is no pool {name[:63]!r}")
    values = {"profile": profile, "weights": dict(weights) if weights else None, "version": row.version + 1}
    await connection.execute(update(pools).where(pools.c.id == row.id).values(values))
    await events.append(connection, [events.NewEvent("pool", row.id, row.version + 1, "policy")], now)


def _weights(stored: Mapping[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    return tuple(sorted(stored.items())) if stored else None
