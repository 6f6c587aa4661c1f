"""The capacity and the allocations of pools: sums over their nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import BigInteger, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.tables import node_resources, nodes, pools
from mooring.store.views.nodes import SlotRow


class PoolCapacityRow(NamedTuple):
    pool: str
    states: Mapping[str, int]
    """The number of nodes by status; that of draining ones is DRAINING."""
    slots: Mapping[str, SlotRow]


async def by_pool(connection: AsyncConnection) -> list[PoolCapacityRow]:
    """Return the sums of each pool that has nodes, in two statements."""
    state = case((nodes.c.draining, "DRAINING"), else_=nodes.c.status)
    in_pool = nodes.join(pools, pools.c.id == nodes.c.pool_id)
    states: dict[str, dict[str, int]] = defaultdict(dict)
    counted = select(pools.c.name, state, func.count()).select_from(in_pool).group_by(pools.c.name, state)
    for pool, of_state, number in await connection.execute(counted):
        states[pool][of_state] = number
    amounts = (node_resources.c[name] for name in ("capacity", "allocatable", "held", "reserved", "used"))
    summed = (
        select(
            pools.c.name,
            node_resources.c.slot_name,
            *(func.sum(column, type_=BigInteger()) for column in amounts),
        )
        .select_from(node_resources.join(in_pool, nodes.c.id == node_resources.c.node_id))
        .group_by(pools.c.name, node_resources.c.slot_name)
        .order_by(node_resources.c.slot_name)
    )
    slots: dict[str, dict[str, SlotRow]] = defaultdict(dict)
    for pool, slot, *sums in await connection.execute(summed):
        slots[pool][slot] = SlotRow(*map(int, sums))
    return [PoolCapacityRow(pool, states[pool], slots[pool]) for pool in sorted(states)]
