"""Pools: sets of nodes with one scheduling policy, and which runtimes they allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import NotFound
from mooring.model.pools import Binding, PoolPolicy
from mooring.model.preemption import Preemption, PreemptionMode, VictimScope
from mooring.store import events
from mooring.store.ids import new_id
from mooring.store.inserts import insert_new
from mooring.store.tables import pools
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


async def all_pools(connection: AsyncConnection) -> list[Pool]:
    rows = await connection.execute(select(pools).order_by(pools.c.name))
    return [
        Pool(
            row.id,
            row.name,
            _policy(row),
            frozenset(row.runtimes),
            row.simulated,
            row.turn,
            row.placement_revision,
            row.version,
        )
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


async def set_policy(connection: AsyncConnection, name: str, policy: PoolPolicy, now: datetime) -> int:
    """How the pool's workloads are placed from the next pass on; the caller has checked that it can be meant.

    The pool's new version.
    """
    row = (await connection.execute(select(pools).where(pools.c.name == name).with_for_update())).one_or_none()
    if row is None:
        raise NotFound(f"there is no pool {name[:63]!r}")
    values = {
        "profile": policy.profile,
        "weights": dict(policy.weights) if policy.weights else None,
        "binding": policy.binding,
        "hold_seconds": policy.hold_seconds,
        "fragmentation": policy.fragmentation,
        "preemption": None if policy.preemption is None else asdict(policy.preemption),
        "options": {} if policy.public else {"public": False},
        "version": row.version + 1,
    }
    await connection.execute(update(pools).where(pools.c.id == row.id).values(values))
    await events.append(connection, [events.NewEvent("pool", row.id, row.version + 1, "policy")], now)
    return int(row.version) + 1


async def set_turns(connection: AsyncConnection, turns: Mapping[str, int]) -> None:
    """Where round robin goes on in each pool, so that a restart does not begin anew with the first node."""
    for name, turn in sorted(turns.items()):
        await connection.execute(update(pools).where(pools.c.name == name).values(turn=turn))


def _policy(row: AnyRow) -> PoolPolicy:
    preemption = row.preemption
    return PoolPolicy(
        profile=row.profile,
        weights=tuple(sorted(row.weights.items())) if row.weights else None,
        binding=Binding(row.binding),
        hold_seconds=row.hold_seconds,
        fragmentation=row.fragmentation,
        public=row.options.get("public", True),
        preemption=None
        if preemption is None
        else Preemption(
            mode=PreemptionMode(preemption["mode"]),
            scope=VictimScope(preemption["scope"]),
            min_runtime_seconds=preemption["min_runtime_seconds"],
            hold_seconds=preemption["hold_seconds"],
        ),
    )
