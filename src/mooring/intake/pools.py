"""What an admin does with pools: choose how their workloads are placed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mooring.clock import now
from mooring.model.errors import NotFound
from mooring.model.pools import Binding, PoolPolicy
from mooring.model.preemption import Preemption, PreemptionMode, VictimScope
from mooring.scheduling.profiles import Registry
from mooring.store import pools
from mooring.store.engine import Connection, Database
from mooring.wire.api import PoolChange, PreemptionChange


class PoolAdmin:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, name: str, asked: PoolChange) -> None:
        """Only what is given changes. A profile or scorer that is not known is refused, with those that are."""
        registry = Registry()
        registry.discover()

        async def work(connection: Connection) -> None:
            found = await pools.by_name(connection, name)
            if found is None:
                raise NotFound(f"there is no pool {name[:63]!r}")
            policy = changed(found.policy, asked)
            registry.profile(policy.profile, weights=dict(policy.weights) if policy.weights else None)
            await pools.set_policy(connection, name, policy, now())

        await self._database.write(work)


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
