"""Tasks for clients that connect to them: location, owner, and whether they accept traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.access import Target
from mooring.store.tables import nodes, pools, tasks, workloads


@dataclass(frozen=True, slots=True)
class TaskLocation:
    id: UUID
    task_index: int
    status: str
    node_id: UUID | None
    server_url: str | None
    """The server that the agent of its node is connected to, or was last."""
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A task that accepts traffic, with its address and ports."""

    task_id: UUID
    index: int
    revision: int
    node: str
    address: str | None
    ports: Sequence[tuple[str, int]] | None


_ACCEPTS_TRAFFIC = and_(
    tasks.c.current, tasks.c.status == TaskStatus.RUNNING, tasks.c.ready_at.is_not(None), tasks.c.retires_at.is_(None)
)
"""A task accepts traffic if it runs, is ready and is not retiring."""


async def of_task(connection: AsyncConnection, task_id: UUID) -> TaskLocation | None:
    row = (await connection.execute(_locations().where(tasks.c.id == task_id))).one_or_none()
    return TaskLocation(**row._mapping) if row is not None else None


async def ready(connection: AsyncConnection, workload_id: UUID) -> list[TaskLocation]:
    """Return the tasks of a workload that accept traffic."""
    rows = await connection.execute(
        _locations().where(tasks.c.workload_id == workload_id, _ACCEPTS_TRAFFIC).order_by(tasks.c.task_index)
    )
    return [TaskLocation(**row._mapping) for row in rows]


async def server_of(connection: AsyncConnection, node_id: UUID) -> str | None:
    """Return the URL of the server that a node's agent is connected to, or was last."""
    found = await connection.execute(select(nodes.c.server_url).where(nodes.c.id == node_id))
    url: str | None = found.scalar_one_or_none()
    return url


async def endpoints(connection: AsyncConnection, workload_id: UUID) -> list[Endpoint]:
    """Return the endpoints of the tasks that accept traffic, for clients that connect to them directly."""
    own = tasks.c
    rows = await connection.execute(
        select(own.id, own.task_index, own.revision, own.node_name, own.address, own.ports)
        .where(own.workload_id == workload_id, _ACCEPTS_TRAFFIC)
        .order_by(own.task_index)
    )
    return [Endpoint(*row) for row in rows]


def _locations() -> Select[Any]:
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
