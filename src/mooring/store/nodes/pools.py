"""Pools: sets of nodes with one scheduling policy, and which runtimes they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict, NotFound
from mooring.model.pools import PoolPolicy
from mooring.store import events
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import (
    join_tokens,
    nodes,
    pools,
    scale_requests,
    tenant_resources,
    timeslots,
    volumes,
    workloads,
)
from mooring.store.types import AnyRow


@dataclass(frozen=True, slots=True)
class Pool:
    id: UUID
    name: str
    policy: PoolPolicy
    runtimes: frozenset[str]
    simulated: bool
    turn: int = 0
    """Where round robin goes on."""
    placement_revision: int = 0
    """How many commits have placed something in it."""
    version: int = 1


MOST_TASKS = """
    CASE WHEN CAST(pools.options ->> 'max_tasks_per_node' AS INTEGER) < COALESCE(nodes.max_tasks, 2147483647)
    THEN CAST(pools.options ->> 'max_tasks_per_node' AS INTEGER) ELSE nodes.max_tasks END
"""
"""How many tasks a node may have: as many as it says or as its pool does, whichever is less; null: any number."""

_ALL = select(pools).order_by(pools.c.name)
_OWN_COLUMNS = ("profile", "weights", "binding", "hold_seconds", "fragmentation", "preemption")


async def all_pools(connection: AsyncConnection) -> list[Pool]:
    rows = await connection.execute(_ALL)
    return [
        Pool(
            row.id,
            row.name,
            policy_of(row),
            frozenset(row.runtimes),
            row.simulated,
            row.turn,
            row.placement_revision,
            row.version,
        )
        for row in rows
    ]


async def lock(connection: AsyncConnection, name: str) -> None:
    """From here on the pool changes and goes by this transaction alone, and nothing new comes to belong to it."""
    await connection.execute(select(pools.c.id).where(pools.c.name == name).with_for_update())


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
    return await _insert(connection, name, runtimes, simulated, PoolPolicy(profile), now)


async def create(
    connection: AsyncConnection,
    name: str,
    *,
    runtimes: Sequence[str],
    simulated: bool,
    policy: PoolPolicy,
    now: datetime,
) -> Pool:
    if await by_name(connection, name) is not None:
        raise Conflict(f"there is a pool {name!r} already", code="pool-exists")
    made = await _insert(connection, name, runtimes, simulated, policy, now)
    await events.append(connection, [events.NewEvent("pool", made.id, made.version, "policy")], now)
    return made


async def _insert(
    connection: AsyncConnection, name: str, runtimes: Sequence[str], simulated: bool, policy: PoolPolicy, now: datetime
) -> Pool:
    values = {"runtimes": sorted(runtimes), "simulated": simulated, "created_at": now, **_values(policy)}
    await insert_new(connection, pools, {"id": new_id(), "name": name, **values})
    made = await by_name(connection, name)
    assert made is not None
    return made


async def remove(connection: AsyncConnection, pool: Pool, now: datetime) -> None:
    """Refused while nodes, workloads or volumes belong to it, ended ones included as long as they are kept.

    Tokens to join it are good for nothing then and go with it, as does what projects were guaranteed there.
    """
    await lock(connection, pool.name)
    owned = {
        "nodes": nodes,
        "workloads": workloads,
        "timeslots": timeslots,
        "scale requests": scale_requests,
        "volumes": volumes,
    }
    for what, table in owned.items():
        found = await connection.scalar(select(table.c.id).where(table.c.pool_id == pool.id).limit(1))
        if found is not None:
            raise Conflict(f"pool {pool.name!r} still has {what}", code="pool-in-use", details={"pool": pool.name})
    await connection.execute(delete(join_tokens).where(join_tokens.c.pool_id == pool.id))
    await connection.execute(delete(tenant_resources).where(tenant_resources.c.pool == pool.name))
    await connection.execute(delete(pools).where(pools.c.id == pool.id))
    await events.append(connection, [events.NewEvent("pool", pool.id, pool.version + 1, "removed")], now)


async def set_policy(connection: AsyncConnection, name: str, policy: PoolPolicy, now: datetime) -> int:
    """How the pool's workloads are placed from the next pass on; the caller has checked that it can be meant.

    The pool's new version.
    """
    row = (await connection.execute(select(pools).where(pools.c.name == name).with_for_update())).one_or_none()
    if row is None:
        raise NotFound(f"there is no pool {name[:63]!r}")
    version = int(row.version) + 1
    await connection.execute(update(pools).where(pools.c.id == row.id).values(**_values(policy), version=version))
    await events.append(connection, [events.NewEvent("pool", row.id, version, "policy")], now)
    return version


async def set_turns(connection: AsyncConnection, turns: Mapping[str, int]) -> None:
    """Where round robin goes on in each pool, so that a restart does not begin anew with the first node."""
    for name, turn in sorted(turns.items()):
        await connection.execute(update(pools).where(pools.c.name == name).values(turn=turn))


def _values(policy: PoolPolicy) -> dict[str, Any]:
    """A policy as columns: those of its options that have none of their own are kept where they are not the default."""
    state: dict[str, Any] = msgspec.to_builtins(policy)
    usual: dict[str, Any] = msgspec.to_builtins(PoolPolicy(policy.profile))
    return {
        **{name: state[name] for name in _OWN_COLUMNS},
        "weights": dict(policy.weights) if policy.weights else None,
        "options": {n: value for n, value in state.items() if n not in _OWN_COLUMNS and value != usual[n]},
    }


def policy_of(row: AnyRow) -> PoolPolicy:
    """The policy in the columns of a row."""
    columns = {name: getattr(row, name) for name in _OWN_COLUMNS}
    weights = sorted(row.weights.items()) if row.weights else None
    return msgspec.convert({**columns, "weights": weights, **row.options}, PoolPolicy)
