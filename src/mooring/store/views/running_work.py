"""The tasks on nodes with their workloads, as a simulation continues them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.resources.devices import DeviceShare, shares_of
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Kind, OnInsufficient, Task, Workload
from mooring.store.core import batch_sql
from mooring.store.core.chunks import chunks
from mooring.store.tables import pools, tasks, timeslots, workloads
from mooring.store.workloads import mounts
from mooring.store.workloads.pending import PLACEMENT_COLUMNS, as_workload

_WORKLOADS_AT_ONCE = 1000


class TaskOnNode(NamedTuple):
    """A task that occupies a node."""

    task: Task
    node_id: UUID
    request: Amounts
    started_at: datetime | None
    deadline_at: datetime | None
    leaving: bool
    """It is being stopped."""
    devices: tuple[DeviceShare, ...]
    ports: tuple[int, ...]


class RunningWork(NamedTuple):
    """A workload with its tasks on nodes."""

    workload: Workload
    """Without pending tasks."""
    tasks: tuple[TaskOnNode, ...]
    preemptible: bool
    whole: bool
    """Preempting one of its tasks ends all of them."""
    timeslot_ends_at: datetime | None


async def tasks_by_workload(connection: AsyncConnection) -> dict[UUID, int]:
    """Return the workloads that have tasks on nodes with the number of these tasks, oldest first."""
    number = func.count().label("number")
    found = select(tasks.c.workload_id, number).where(tasks.c.status.in_(list(OCCUPYING)), tasks.c.node_id.is_not(None))
    rows = await connection.execute(found.group_by(tasks.c.workload_id))
    return dict(sorted((row.workload_id, row.number) for row in rows))


async def read(connection: AsyncConnection, workload_ids: Sequence[UUID]) -> list[RunningWork]:
    """Return these workloads with their tasks on nodes; those without any are left out."""
    found: list[RunningWork] = []
    for part in chunks(workload_ids, _WORKLOADS_AT_ONCE):
        found += await _read(connection, part)
    return found


async def _read(connection: AsyncConnection, workload_ids: Sequence[UUID]) -> list[RunningWork]:
    own, workload = tasks.c, workloads.c
    on_nodes: defaultdict[UUID, list[TaskOnNode]] = defaultdict(list)
    query = (
        select(
            own.workload_id,
            own.id,
            own.task_index,
            own.attempt,
            own.node_id,
            own.status,
            own.requested_slots,
            own.started_at,
            own.deadline_at,
            own.devices,
            own.ports,
        )
        .where(batch_sql.among(own.workload_id), own.status.in_(list(OCCUPYING)), own.node_id.is_not(None))
        .order_by(own.workload_id, own.task_index)
    )
    for row in await connection.execute(query, {"ids": list(workload_ids)}):
        task = TaskOnNode(
            Task(row.id, row.task_index, row.attempt),
            row.node_id,
            row.requested_slots,
            row.started_at,
            row.deadline_at,
            row.status == TaskStatus.TERMINATING,
            tuple(shares_of(row.devices)),
            tuple(_numbers(row.ports)),
        )
        on_nodes[row.workload_id].append(task)
    several = and_(workload.kind == Kind.SESSION, workload.array.is_(None), workload.replicas > 1)
    whole = or_(several, and_(workload.gang, workload.on_insufficient != OnInsufficient.FAIL))
    rows = await connection.execute(
        select(
            *PLACEMENT_COLUMNS,
            pools.c.name.label("pool_name"),
            and_(workload.preemptible, workload.timeslot_id.is_(None)).label("may_be_preempted"),
            whole.label("is_whole"),
            timeslots.c.ends_at.label("timeslot_ends_at"),
        )
        .join(pools, pools.c.id == workload.pool_id)
        .outerjoin(timeslots, timeslots.c.id == workload.timeslot_id)
        .where(batch_sql.among(workload.id))
        .order_by(workload.id),
        {"ids": list(on_nodes)},
    )
    known = rows.all()
    mounted = await mounts.of_workloads(connection, [row.id for row in known])
    return [
        RunningWork(
            as_workload(row, (), {}, mounted=mounted.get(row.id, ())),
            tuple(on_nodes[row.id]),
            row.may_be_preempted,
            row.is_whole,
            row.timeslot_ends_at,
        )
        for row in known
    ]


def _numbers(ports: Iterable[tuple[str, int]] | None) -> list[int]:
    return [port for _, port in ports or ()]
