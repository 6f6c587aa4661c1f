"""The demand that pools learn from their newest workloads, for profiles that place work by the demand to come.

The leader stores it when the newest workloads say more than the stored demand. It therefore survives restarts, changes
of the leader and the deletion of old workloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mooring.coordination.fenced_database import FencedDatabase
from mooring.scheduling.expected_fill.learning import FIRST, WINDOW, Request, has_changed
from mooring.scheduling.plugins.profiles import places_by_demand
from mooring.store.nodes import learned_demand, pools
from mooring.store.nodes.learned_demand import CommonRequest


class LearnedDemandLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> bool:
        async with self._database.snapshot() as connection:
            known = await learned_demand.stored(connection)
            learned = {
                pool.id: await learned_demand.newest(connection, pool.id, WINDOW)
                for pool in await pools.all_pools(connection)
                if places_by_demand(pool.policy)
            }
        adopted = [
            (pool_id, newest)
            for pool_id, newest in sorted(learned.items())
            if _is_worth_adopting(_arrivals(known.get(pool_id, ())), _arrivals(newest))
        ]
        if adopted:
            await self._database.write(lambda connection, _: learned_demand.store(connection, adopted))
        return False


def _is_worth_adopting(before: Counter[Request], arrivals: Counter[Request]) -> bool:
    return arrivals.total() >= FIRST and has_changed(before, arrivals)


def _arrivals(demand: Sequence[CommonRequest]) -> Counter[Request]:
    return Counter({(tuple(sorted(each.request.items())), each.models): each.workloads for each in demand})
