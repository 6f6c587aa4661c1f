"""What an admin does with pools: choose how their workloads are placed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from mooring.clock import now
from mooring.model.access import not_there
from mooring.model.pools import Binding, PoolPolicy
from mooring.model.preemption import Preemption, PreemptionMode, VictimScope
from mooring.scheduling.profiles import Registry
from mooring.store import actions, pools
from mooring.store.actions import SERVER, Actor
from mooring.store.engine import Connection, Database
from mooring.store.policies import earlier
from mooring.wire.api import PoolChange, PreemptionChange


class PoolAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, name: str, asked: PoolChange, actor: Actor = SERVER) -> None:
        """Only what is given changes. A profile or scorer that is not known is refused, with those that are."""

        async def work(connection: Connection) -> None:
            policy = changed((await _found(connection, name)).policy, asked)
            await self._set(connection, name, policy, actor, "change")

        await self._database.write(work)

    async def revert(self, name: str, version: int | None, actor: Actor) -> None:
        """The policy of an earlier version again, the one before if none is named; it is checked as any change is."""

        async def work(connection: Connection) -> None:
            wanted = earlier(version, (await _found(connection, name)).version, f"pool {name!r}")
            state = await actions.state_at(connection, "pool", name, wanted)
            if state is None:
                raise not_there(f"record of version {wanted} of pool {name!r}")
            await self._set(connection, name, msgspec.convert(state, PoolPolicy), actor, "revert")

        await self._database.write(work)

    async def _set(self, connection: Connection, name: str, policy: PoolPolicy, actor: Actor, action: str) -> None:
        registry = Registry()
        registry.discover()
        registry.profile(policy.profile, weights=dict(policy.weights) if policy.weights else None)
        before = (await _found(connection, name)).policy
        at = now()
        version = await pools.set_policy(connection, name, policy, at)
        await actions.record(
            connection,
            actor,
            action,
            "pool",
            name,
            now=at,
            before=msgspec.to_builtins(before),
            after=msgspec.to_builtins(policy),
            version=version,
        )


async def _found(connection: Connection, name: str) -> pools.Pool:
    found = await pools.by_name(connection, name)
    if found is None:
        raise not_there(f"pool {name[:63]!r}")
    return found


def changed(policy: PoolPolicy, asked: PoolChange) -> PoolPolicy:
    """The policy with what is asked for in place of what was."""
    given: dict[str, Any] = {}
    if asked.profile is not None:
        given["profile"] = asked.profile
    if asked.weights is not None:
        given["weights"] = tuple(sorted(asked.weights.items())) or None
    if asked.binding is not None:
        given["binding"] = Binding(asked.binding)
    if asked.hold_seconds is not None:
        given["hold_seconds"] = asked.hold_seconds
    if asked.fragmentation is not None:
        given["fragmentation"] = asked.fragmentation
    if asked.preemption is not None:
        given["preemption"] = _preemption(asked.preemption)
    return replace(policy, **given)


def _preemption(asked: PreemptionChange) -> Preemption | None:
    if not asked.enabled:
        return None
    return Preemption(
        PreemptionMode(asked.mode), VictimScope(asked.scope), asked.min_runtime_seconds, asked.hold_seconds
    )
