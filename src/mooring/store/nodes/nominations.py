"""Nominated nodes: the node that the replacement of an evicted task prefers to all others."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.types import AnyRow
from mooring.store.tables import nodes, pools, tasks, workloads


async def workload_of(connection: AsyncConnection, task_id: UUID) -> UUID | None:
    return (await connection.execute(select(tasks.c.workload_id).where(tasks.c.id == task_id))).scalar_one_or_none()


async def on_node(connection: AsyncConnection, task_id: UUID) -> AnyRow | None:
    """Return a task on a node with the properties of its workload on which a move depends."""
    found = await connection.execute(
        select(
            tasks.c.status.label("task_status"),
            tasks.c.current,
            tasks.c.revision.label("task_revision"),
            tasks.c.requested_slots.label("task_request"),
            nodes.c.name.label("node"),
            pools.c.name.label("pool"),
            workloads.c.name,
            workloads.c.kind,
            workloads.c.type,
            workloads.c.replicas,
            workloads.c.array.is_not(None).label("is_array"),
            workloads.c.preemptible,
            workloads.c.rolling,
            workloads.c.revision,
            workloads.c.requested_slots,
            workloads.c.stopping,
            workloads.c.timeslot_id,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .join(nodes, nodes.c.id == tasks.c.node_id)
        .join(pools, pools.c.id == nodes.c.pool_id)
        .where(tasks.c.id == task_id)
    )
    return found.one_or_none()


async def target(connection: AsyncConnection, pool: str, name: str) -> AnyRow | None:
    found = await connection.execute(
        select(nodes.c.id, nodes.c.status, nodes.c.schedulable, pools.c.fragmentation)
        .join(pools, pools.c.id == nodes.c.pool_id)
        .where(nodes.c.name == name, pools.c.name == pool)
    )
    return found.one_or_none()


async def nominate(connection: AsyncConnection, task_id: UUID, node: str) -> None:
    """Set the node that the replacement of a task prefers."""
    await connection.execute(update(tasks).where(tasks.c.id == task_id).values(nominated_node=node))
