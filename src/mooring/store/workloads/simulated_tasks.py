"""Tasks on simulated nodes: the next step of each, and their simulated load."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.simulation import LOAD, SECONDS
from mooring.store.core.queries import Query
from mooring.store.tables import node_resources, nodes, tasks, workloads

_CPU = "cpu"
_STEPS = Query(
    select(tasks.c.id, tasks.c.workload_id, tasks.c.status, workloads.c.labels)
    .join(nodes, nodes.c.id == tasks.c.node_id)
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .where(
        nodes.c.simulated,
        or_(
            tasks.c.status.in_([TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.TERMINATING]),
            and_(tasks.c.status == TaskStatus.RESERVED, tasks.c.prepared_at.is_(None)),
            and_(tasks.c.status == TaskStatus.LOST, tasks.c.freed_at.is_(None)),
        ),
    )
    .order_by(tasks.c.id)
)


class Step(NamedTuple):
    task_id: UUID
    workload_id: UUID
    status: TaskStatus
    behaves: bool
    """The labels of its workload set an end or a load."""


async def steps(connection: AsyncConnection) -> list[Step]:
    """Return the tasks that need the next step an agent would take."""
    return [
        Step(id, workload_id, TaskStatus(status), SECONDS in labels or LOAD in labels)
        for id, workload_id, status, labels in await _STEPS.rows(connection)
    ]


class Running(NamedTuple):
    task_id: UUID
    workload_id: UUID
    node_id: UUID
    started_at: datetime
    labels: Mapping[str, str]
    cpu: int
    """Requested CPU in thousandths of a core."""


async def running(connection: AsyncConnection) -> list[Running]:
    """Return the running tasks whose labels set an end or a load."""
    labels = workloads.c.labels
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.workload_id, tasks.c.node_id, tasks.c.started_at, labels, tasks.c.requested_slots)
        .join(nodes, nodes.c.id == tasks.c.node_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            nodes.c.simulated,
            tasks.c.status == TaskStatus.RUNNING,
            or_(labels[SECONDS].as_string().is_not(None), labels[LOAD].as_string().is_not(None)),
        )
        .order_by(tasks.c.id)
    )
    return [
        Running(id, workload_id, node_id, at, given, int(slots.get(_CPU, 0)))
        for id, workload_id, node_id, at, given, slots in rows
    ]


async def load_percents(connection: AsyncConnection) -> dict[UUID, tuple[int, float]]:
    """Return the CPU capacity and the current load of every simulated node."""
    rows = await connection.execute(
        select(nodes.c.id, node_resources.c.capacity, nodes.c.cpu_percent)
        .join(node_resources, node_resources.c.node_id == nodes.c.id)
        .where(nodes.c.simulated, node_resources.c.slot_name == _CPU)
    )
    return {node_id: (int(capacity), percent) for node_id, capacity, percent in rows}


async def set_loads(connection: AsyncConnection, percents: Mapping[UUID, float], now: datetime) -> None:
    for node_id, percent in sorted(percents.items()):
        await connection.execute(
            update(nodes).where(nodes.c.id == node_id).values(cpu_percent=percent, last_seen_at=now)
        )
