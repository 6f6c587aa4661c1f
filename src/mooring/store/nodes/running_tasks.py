"""Running tasks as preemption sees them: candidate victims on nodes, and each workload's disruption budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.preemption import Budgets, RunningTask
from mooring.model.resources.devices import shares_of
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Kind, OnInsufficient
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, workloads

_STAYING = (TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING)
"""Statuses of candidate victims; a task that only holds a reservation is never one."""


async def on_nodes(
    connection: AsyncConnection, ids: Sequence[UUID], constraints: Mapping[UUID, Constraints]
) -> dict[UUID, list[RunningTask]]:
    """Return the tasks on these nodes, by node; the caller provides `constraints` by workload."""
    found: dict[UUID, list[RunningTask]] = {node_id: [] for node_id in ids}
    for row in await connection.execute(_on_nodes(), {"ids": ids}):
        found[row.node_id].append(_running_task(row, constraints))
    return found


@cache
def _on_nodes() -> Select[Any]:
    # A session with several tasks ends as a whole when one is preempted. A deployment replaces its tasks one by one,
    # unless it asks for gang scheduling; with on_insufficient=fail, only its start is all or nothing.
    several = and_(workloads.c.kind == Kind.SESSION, workloads.c.array.is_(None), workloads.c.replicas > 1)
    whole = or_(several, and_(workloads.c.gang, workloads.c.on_insufficient != OnInsufficient.FAIL))
    # Preempting a task inside a timeslot would free capacity for nobody outside it.
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
    """Return the number of running tasks that each workload with `min_available` can spare."""
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


def _running_task(row: AnyRow, constraints: Mapping[UUID, Constraints]) -> RunningTask:
    return RunningTask(
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
