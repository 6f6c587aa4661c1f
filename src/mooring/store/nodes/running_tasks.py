"""Who is on the nodes, as far as preemption asks: tasks that may have to leave, and how many of each workload may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.constraints import Constraints
from mooring.model.devices import shares_of
from mooring.model.lifecycle import TaskStatus
from mooring.model.preemption import Budgets, Resident
from mooring.model.workloads import Kind, OnInsufficient
from mooring.store.sets import among
from mooring.store.tables import tasks, workloads
from mooring.store.types import AnyRow

_STAYING = (TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING)
"""What only has a place kept for it is nobody's victim."""


async def on_nodes(
    connection: AsyncConnection, ids: Sequence[UUID], constraints: Mapping[UUID, Constraints]
) -> dict[UUID, list[Resident]]:
    """The tasks on these nodes, by node; `constraints` by workload are the caller's."""
    found: dict[UUID, list[Resident]] = {node_id: [] for node_id in ids}
    for row in await connection.execute(_on_nodes(), {"ids": ids}):
        found[row.node_id].append(_resident(row, constraints))
    return found


@cache
def _on_nodes() -> Select[Any]:
    # Of a session nothing is left when one task is gone. A service replaces what it loses, one by one, unless it is a
    # gang by its own wish: one that fails at once only has to start as a whole.
    several = and_(workloads.c.kind == Kind.SESSION, workloads.c.array.is_(None), workloads.c.replicas > 1)
    whole = or_(several, and_(workloads.c.gang, workloads.c.on_insufficient != OnInsufficient.FAIL))
    # What is inside a timeslot would leave room to nobody else.
    preemptible = and_(workloads.c.preemptible, workloads.c.timeslot_id.is_(None))
    leaving = and_(tasks.c.status == TaskStatus.TERMINATING, tasks.c.preempted_by.is_not(None))
    return (
        select(
            tasks.c.id,
            tasks.c.status,
            tasks.c.preempted_by,
            tasks.c.workload_id,
            tasks.c.node_id,
            tasks.c.requested_slots,
            tasks.c.started_at,
            tasks.c.devices,
            tasks.c.ports,
            workloads.c.priority,
            workloads.c.user_id,
            workloads.c.project_id,
            workloads.c.domain_id,
            preemptible.label("preemptible"),
            whole.label("whole"),
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(among(tasks.c.node_id), or_(tasks.c.status.in_(_STAYING), leaving))
        .order_by(tasks.c.id)
    )


async def budgets(connection: AsyncConnection) -> Budgets:
    """How many running tasks each workload can spare that wants some of them left alone."""
    rows = await connection.execute(_budgets())
    return Budgets({workload_id: max(spare, 0) for workload_id, spare in rows})


@cache
def _budgets() -> Select[Any]:
    running = func.count().filter(tasks.c.status == TaskStatus.RUNNING)
    return (
        select(workloads.c.id, running - workloads.c.min_available)
        .join(tasks, tasks.c.workload_id == workloads.c.id)
        .where(workloads.c.min_available.is_not(None), workloads.c.ended_at.is_(None), tasks.c.current)
        .group_by(workloads.c.id, workloads.c.min_available)
    )


def _resident(row: AnyRow, constraints: Mapping[UUID, Constraints]) -> Resident:
    return Resident(
        task_id=row.id,
        workload_id=row.workload_id,
        node_id=row.node_id,
        priority=row.priority,
        request=row.requested_slots,
        constraints=constraints[row.workload_id],
        user_id=row.user_id,
        project_id=row.project_id,
        domain_id=row.domain_id,
        preemptible=row.preemptible,
        started_at=row.started_at,
        whole=row.whole,
        leaving_for=row.preempted_by if row.status == TaskStatus.TERMINATING else None,
        devices=tuple(shares_of(row.devices)),
        ports=tuple((protocol, port) for protocol, port in row.ports or ()),
    )
