"""Tasks as those see them who want to get in: where they are, whose they are, and which of them take visitors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import Target
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import nodes, pools, tasks, workloads


@dataclass(frozen=True, slots=True)
class Entrance:
    id: UUID
    task_index: int
    status: str
    node_id: UUID | None
    server_url: str | None
    """Of the server that the agent of its node is connected to."""
    workload_id: UUID
    workload: str
    simulated: bool
    domain_id: UUID
    project_id: UUID
    user_id: UUID

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.project_id, self.user_id)

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.task_index}"


async def of_task(connection: AsyncConnection, task_id: UUID) -> Entrance | None:
    row = (await connection.execute(_entrances().where(tasks.c.id == task_id))).one_or_none()
    return Entrance(**row._mapping) if row is not None else None


async def ready(connection: AsyncConnection, workload_id: UUID) -> list[Entrance]:
    """The tasks of a workload that people may be sent to: they run, are ready, and do not retire."""
    rows = await connection.execute(
        _entrances()
        .where(
            tasks.c.workload_id == workload_id,
            tasks.c.current,
            tasks.c.status == TaskStatus.RUNNING,
            tasks.c.ready,
            tasks.c.retires_at.is_(None),
        )
        .order_by(tasks.c.task_index)
    )
    return [Entrance(**row._mapping) for row in rows]


async def server_of(connection: AsyncConnection, node_id: UUID) -> str | None:
    """The address of the server that a node's agent is connected to, or was last."""
    found = await connection.execute(select(nodes.c.server_url).where(nodes.c.id == node_id))
    url: str | None = found.scalar_one_or_none()
    return url


def _entrances() -> Select[Any]:
    return (
        select(
            tasks.c.id,
            tasks.c.task_index,
            tasks.c.status,
            tasks.c.node_id,
            nodes.c.server_url,
            tasks.c.workload_id,
            workloads.c.name.label("workload"),
            pools.c.simulated,
            workloads.c.domain_id,
            workloads.c.project_id,
            workloads.c.user_id,
        )
        .outerjoin(nodes, nodes.c.id == tasks.c.node_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .join(pools, pools.c.id == workloads.c.pool_id)
    )
