"""A workload with the nodes that its tasks are on, as placement would see it were it to place them now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.devices import DeviceShare, shares_of
from mooring.model.lifecycle import OCCUPYING
from mooring.model.workloads import ONE_TASK, Workload
from mooring.store import mounts
from mooring.store.tables import pools, tasks, workloads
from mooring.store.workloads import SEEN_BY_PLACEMENT, as_placement_sees


class Placed(NamedTuple):
    workload: Workload
    devices: Mapping[UUID, Sequence[DeviceShare]]
    """Per node what its tasks there have of the devices."""


async def placed(connection: AsyncConnection, workload_id: UUID) -> Placed | None:
    """None if no task of it is on a node."""
    on_nodes = await connection.execute(
        select(tasks.c.node_id, tasks.c.devices).where(
            tasks.c.workload_id == workload_id,
            tasks.c.status.in_(list(OCCUPYING)),
            tasks.c.node_id.is_not(None),
        )
    )
    occupied: Counter[UUID] = Counter()
    devices: dict[UUID, list[DeviceShare]] = defaultdict(list)
    for task in on_nodes:
        occupied[task.node_id] += 1
        devices[task.node_id] += shares_of(task.devices)
    if not occupied:
        return None
    row = (
        await connection.execute(
            select(*SEEN_BY_PLACEMENT, pools.c.name.label("pool_name"))
            .join(pools, pools.c.id == workloads.c.pool_id)
            .where(workloads.c.id == workload_id)
        )
    ).one()
    mounted = await mounts.of_workloads(connection, [workload_id])
    return Placed(as_placement_sees(row, ONE_TASK, occupied, mounted=mounted.get(workload_id, ())), devices)
