"""The tasks on one node, with what a drain of it depends on."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.store.core.types import AnyRow
from mooring.store.tables import nodes, pools, tasks, users, workloads


async def pool_of(connection: AsyncConnection, name: str) -> AnyRow | None:
    """Return the id of a node and the name of its pool; None if there is no such node."""
    found = select(nodes.c.id, pools.c.name.label("pool")).join(pools, pools.c.id == nodes.c.pool_id)
    return (await connection.execute(found.where(nodes.c.name == name))).one_or_none()


async def tasks_on(connection: AsyncConnection, node_id: UUID) -> list[AnyRow]:
    """Return the tasks that occupy a node and do not end already, by workload and index."""
    staying = [status for status in OCCUPYING if status is not TaskStatus.TERMINATING]
    own, of = tasks.c, workloads.c
    return list(
        await connection.execute(
            select(own.id, own.task_index, own.status, own.workload_id)
            .add_columns(of.name, of.kind, of.type, of.array, of.replicas, users.c.name.label("username"))
            .join(workloads, of.id == own.workload_id)
            .join(users, users.c.id == of.user_id)
            .where(own.node_id == node_id, own.status.in_(staying))
            .order_by(of.name, own.task_index, own.id)
        )
    )
