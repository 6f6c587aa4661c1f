"""Pools: sets of nodes that share a scheduling policy and allowed runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.policy.pools import AUTOMATIC, PoolPolicy
from mooring.model.tenancy.access import not_there
from mooring.store.control import events
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.core.types import AnyRow
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


@dataclass(frozen=True, slots=True)
class Pool:
    id: UUID
    name: str
    policy: PoolPolicy
    runtimes: frozenset[str]
    simulated: bool
    turn: int = 0
    """Position at which round robin continues."""
    placement_revision: int = 0
    """Number of commits that placed tasks in the pool."""
    version: int = 1


MAX_TASKS = """
    CASE WHEN CAST(pools.options ->> 'max_tasks_per_node' AS INTEGER) < COALESCE(nodes.max_tasks, 2147483647)
    THEN CAST(pools.options ->> 'max_tasks_per_node' AS INTEGER) ELSE nodes.max_tasks END
"""
"""Maximum number of tasks on a node: the lower of the limits of node and pool; null for no limit."""

REQUIRED_ISOLATION = "pools.options ->> 'isolation'"
"""Isolation level that a pool requires; null for any."""

_FIRST_POLICY = PoolPolicy(AUTOMATIC)
"""Policy of the pools that every database has."""

_ALL = select(*(each for each in pools.c if each is not pools.c.learned_demand)).order_by(pools.c.name)
"""Without what only placement needs, which can be large."""
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
    """Lock the pool's row: until the transaction ends, no other one can change, remove or add a reference to it."""
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
    policy: PoolPolicy = _FIRST_POLICY,
) -> Pool:
    """Return the pool of this name and create it if it is missing; an existing pool is left unchanged."""
    found = await by_name(connection, name)
    if found is not None:
        return found
    return await _insert(connection, name, runtimes, simulated, policy, now)


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
    """Remove a pool; raise Conflict while nodes, workloads, timeslots, scale requests or volumes belong to it.

    Ended ones count until they are deleted. The pool's join tokens and the guarantees of tenants in it are deleted.
    """
    await lock(connection, pool.name)
    owned = {
        "nodes": nodes,
        "workloads": workloads,
        "bookings": timeslots,
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
    """Set the policy used from the next scheduling pass on, which the caller has validated.

    Return the pool's new version.
    """
    row = (await connection.execute(select(pools).where(pools.c.name == name).with_for_update())).one_or_none()
    if row is None:
        raise not_there(f"pool {name[:63]!r}")
    version = int(row.version) + 1
    if policy_of(row).isolation != policy.isolation:
        # Raising the generation invalidates placements that were decided under the old isolation level.
        raised = nodes.c.generation + 1
        await connection.execute(update(nodes).where(nodes.c.pool_id == row.id).values(generation=raised))
    await connection.execute(update(pools).where(pools.c.id == row.id).values(**_values(policy), version=version))
    await events.append(connection, [events.NewEvent("pool", row.id, version, "policy")], now)
    return version


async def set_round_robin_positions(connection: AsyncConnection, positions: Mapping[str, int]) -> None:
    """Store each pool's round-robin position, so that a restart does not begin again with the first node."""
    for name, position in sorted(positions.items()):
        await connection.execute(update(pools).where(pools.c.name == name).values(turn=position))


def _values(policy: PoolPolicy) -> dict[str, Any]:
    """Return a policy as column values; options without a column are stored if they differ from the default."""
    state: dict[str, Any] = msgspec.to_builtins(policy)
    usual: dict[str, Any] = msgspec.to_builtins(PoolPolicy(policy.profile))
    return {
        **{name: state[name] for name in _OWN_COLUMNS},
        "weights": dict(policy.weights) if policy.weights else None,
        "options": {n: value for n, value in state.items() if n not in _OWN_COLUMNS and value != usual[n]},
    }


def policy_of(row: AnyRow) -> PoolPolicy:
    """Return the policy stored in a pool's row."""
    columns = {name: getattr(row, name) for name in _OWN_COLUMNS}
    weights = sorted(row.weights.items()) if row.weights else None
    return msgspec.convert({**columns, "weights": weights, **row.options}, PoolPolicy)
