"""What an admin does with pools: choose how their workloads are placed."""

from __future__ import annotations

from mooring.clock import now
from mooring.model.errors import NotFound
from mooring.scheduling.profiles import Registry
from mooring.store import pools
from mooring.store.engine import Connection, Database
from mooring.wire.api import PoolChange


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
            profile = asked.profile or found.profile
            weights = dict(found.weights or ()) if asked.weights is None else asked.weights
            registry.profile(profile, weights=dict(weights) or None)
            await pools.set_policy(connection, name, profile, weights, now())

        await self._database.write(work)
