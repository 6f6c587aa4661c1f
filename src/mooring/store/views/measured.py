"""Running tasks with their requests and owners, for views of measured usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.tenancy.access import Sight
from mooring.store.tables import pools, projects, tasks, users, workloads
from mooring.store.views.visibility import shown_to

_MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Running:
    """A filter of running tasks; None does not restrict."""

    sight: Sight
    pool: str | None = None
    user: str | None = None
    name: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class RunningRow:
    id: UUID
    workload_id: UUID
    workload: str
    task_index: int
    user: str
    project: str
    pool: str
    node_name: str | None
    requested_slots: Mapping[str, int]
    started_at: datetime | None
    deadline_at: datetime | None
    devices: Mapping[str, Sequence[tuple[int, int]]] | None


async def running(connection: AsyncConnection, selection: Running) -> list[RunningRow]:
    wanted = (
        (pools.c.name, selection.pool),
        (users.c.name, selection.user),
        (workloads.c.name, selection.name),
        (tasks.c.node_name, selection.node),
    )
    rows = await connection.execute(
        select(
            tasks.c.id,
            tasks.c.workload_id,
            workloads.c.name.label("workload"),
            tasks.c.task_index,
            users.c.name.label("user"),
            projects.c.name.label("project"),
            pools.c.name.label("pool"),
            tasks.c.node_name,
            tasks.c.requested_slots,
            tasks.c.started_at,
            tasks.c.deadline_at,
            tasks.c.devices,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .join(pools, pools.c.id == workloads.c.pool_id)
        .join(projects, projects.c.id == workloads.c.project_id)
        .join(users, users.c.id == workloads.c.user_id)
        .where(tasks.c.status == TaskStatus.RUNNING, shown_to(selection.sight))
        .where(*(column == value for column, value in wanted if value is not None))
        .order_by(tasks.c.id.desc())
        .limit(_MAX_ROWS)
    )
    return [RunningRow(**row._mapping) for row in rows]
