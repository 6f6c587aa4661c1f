"""A workload with the nodes of its placed tasks, in the form that the scheduler would see it now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING
from mooring.model.resources.devices import DeviceShare, shares_of
from mooring.model.workloads.workload import ONE_TASK, Workload
from mooring.store.tables import pools, tasks, workloads
from mooring.store.workloads import mounts
from mooring.store.workloads.pending import PLACEMENT_COLUMNS, as_workload


class Placed(NamedTuple):
    workload: Workload
    devices: Mapping[UUID, Sequence[DeviceShare]]
    """The device shares of its tasks, by node."""


async def placed(connection: AsyncConnection, workload_id: UUID) -> Placed | None:
    """Return the workload, or None if none of its tasks is on a node."""
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
            select(*PLACEMENT_COLUMNS, pools.c.name.label("pool_name"))
            .join(pools, pools.c.id == workloads.c.pool_id)
            .where(workloads.c.id == workload_id)
        )
    ).one()
    mounted = await mounts.of_workloads(connection, [workload_id])
    return Placed(as_workload(row, ONE_TASK, occupied, mounted=mounted.get(workload_id, ())), devices)
