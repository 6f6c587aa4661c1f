"""Tasks as those see them who want to get in: where they are, whose they are, and which of them take visitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, select
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A task that somebody may be sent to."""

    task_id: UUID
    index: int
    revision: int
    node: str
    address: str | None
    ports: Sequence[tuple[str, int]] | None


_TAKES_VISITORS = and_(
    tasks.c.current, tasks.c.status == TaskStatus.RUNNING, tasks.c.ready_at.is_not(None), tasks.c.retires_at.is_(None)
)
"""People may be sent there: it runs, is ready, and does not retire."""


async def of_task(connection: AsyncConnection, task_id: UUID) -> Entrance | None:
    row = (await connection.execute(_entrances().where(tasks.c.id == task_id))).one_or_none()
    return Entrance(**row._mapping) if row is not None else None


async def ready(connection: AsyncConnection, workload_id: UUID) -> list[Entrance]:
    """The tasks of a workload that people may be sent to."""
    rows = await connection.execute(
        _entrances().where(tasks.c.workload_id == workload_id, _TAKES_VISITORS).order_by(tasks.c.task_index)
    )
    return [Entrance(**row._mapping) for row in rows]


async def server_of(connection: AsyncConnection, node_id: UUID) -> str | None:
    """The address of the server that a node's agent is connected to, or was last."""
    found = await connection.execute(select(nodes.c.server_url).where(nodes.c.id == node_id))
    url: str | None = found.scalar_one_or_none()
    return url


async def endpoints(connection: AsyncConnection, workload_id: UUID) -> list[Endpoint]:
    """The same tasks, for those who find their way there by themselves."""
    own = tasks.c
    rows = await connection.execute(
        select(own.id, own.task_index, own.revision, own.node_name, own.address, own.ports)
        .where(own.workload_id == workload_id, _TAKES_VISITORS)
        .order_by(own.task_index)
    )
    return [Endpoint(*row) for row in rows]


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
