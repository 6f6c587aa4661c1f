"""Desired tasks of a node, as its agent receives them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, bindparam, case, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, UNSTARTED, TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.workload import Kind
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow, json_type
from mooring.store.tables import nodes, projects, tasks, users, workload_revisions, workloads


async def desired(connection: AsyncConnection, node_id: UUID) -> list[AnyRow]:
    """Return the tasks that occupy the node: those to run, those to stop, and ended ones not yet cleaned up."""
    return list(await connection.execute(_desired(), {"node": node_id}))


@cache
def _desired() -> Select[Any]:
    # The earlier of deadline and drain end counts, so that a session gets its warning signal before a drain ends it.
    sooner = or_(tasks.c.deadline_at.is_(None), nodes.c.drain_until < tasks.c.deadline_at)
    drained_first = and_(nodes.c.draining, nodes.c.drain_until.is_not(None), sooner)
    ends_at = case((drained_first, nodes.c.drain_until), else_=tasks.c.deadline_at)
    return (
        select(
            tasks.c.id,
            tasks.c.workload_id,
            tasks.c.node_id,
            tasks.c.task_index,
            tasks.c.attempt,
            tasks.c.status,
            tasks.c.ports,
            tasks.c.devices,
            ends_at.label("deadline_at"),
            workloads.c.name,
            workloads.c.kind,
            workloads.c.replicas,
            workloads.c.array,
            func.coalesce(workload_revisions.c.template, workloads.c.template, type_=json_type()).label("template"),
            workloads.c.warning_signal,
            workloads.c.warning_seconds,
            workloads.c.idle_warned_at,
            workloads.c.user_id,
            workloads.c.project_id,
            projects.c.number.label("project_number"),
            projects.c.name.label("project"),
            nodes.c.name.label("node"),
            users.c.os_user,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .join(projects, projects.c.id == workloads.c.project_id)
        .join(users, users.c.id == workloads.c.user_id)
        .join(nodes, nodes.c.id == tasks.c.node_id)
        # A task runs the revision it was created from, even if its deployment has been updated since.
        .outerjoin(
            workload_revisions,
            and_(workload_revisions.c.workload_id == workloads.c.id, workload_revisions.c.number == tasks.c.revision),
        )
        .where(tasks.c.node_id == bindparam("node"), tasks.c.freed_at.is_(None))
        .order_by(tasks.c.created_at, tasks.c.task_index)
    )


async def gang_tasks(connection: AsyncConnection, rows: Sequence[AnyRow]) -> dict[UUID, list[AnyRow]]:
    """Return all tasks, in order and with their nodes, of the multi-task sessions among these desired tasks."""
    ids = {row.workload_id for row in rows if row.kind == Kind.SESSION and row.array is None and row.replicas > 1}
    found: dict[UUID, list[AnyRow]] = defaultdict(list)
    for row in await connection.execute(_gang_tasks(), {"ids": ids}) if ids else ():
        found[row.workload_id].append(row)
    return found


@cache
def _gang_tasks() -> Select[Any]:
    own = tasks.c
    return (
        select(
            own.workload_id,
            own.task_index,
            own.status,
            own.node_id,
            own.ports,
            own.address,
            nodes.c.address.label("node_address"),
        )
        .outerjoin(nodes, nodes.c.id == own.node_id)
        .where(among(own.workload_id), own.current)
        .order_by(own.task_index)
    )


async def waiting_for_others(connection: AsyncConnection, workload_ids: Collection[UUID]) -> set[UUID]:
    """Return the nodes of these workloads' main tasks that may be held until the other tasks run."""
    if not workload_ids:
        return set()
    return set((await connection.execute(_waiting_for_others(), {"ids": workload_ids})).scalars())


@cache
def _waiting_for_others() -> Select[Any]:
    return (
        select(tasks.c.node_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            among(tasks.c.workload_id),
            tasks.c.task_index == 0,
            tasks.c.status == TaskStatus.SCHEDULED,
            workloads.c.kind == Kind.SESSION,
            workloads.c.array.is_(None),
            workloads.c.replicas > 1,
        )
    )


async def note_progress(connection: AsyncConnection, reasons: Mapping[UUID, Reason]) -> None:
    """Record the progress of tasks in preparation, for display only: nothing depends on it, and no event is emitted."""
    if reasons:
        rows = [{"task": task_id, "told": reason.as_dict()} for task_id, reason in sorted(reasons.items())]
        await connection.execute(_PROGRESS, rows)


_PROGRESS = (
    update(tasks)
    .where(
        tasks.c.id == bindparam("task"),
        # Two comparisons, because IN with an expanding list does not work in an executemany statement.
        or_(tasks.c.status == TaskStatus.RESERVED, tasks.c.status == TaskStatus.PREPARING),
    )
    .values(reason=bindparam("told", type_=tasks.c.reason.type))
)


async def on_nodes(connection: AsyncConnection, node_ids: list[UUID]) -> list[AnyRow]:
    """Return the tasks that occupy these nodes, with their status and kind."""
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.status, tasks.c.node_id, tasks.c.workload_id, workloads.c.kind)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(tasks.c.node_id.in_(node_ids), tasks.c.status.in_(list(OCCUPYING)))
        .order_by(tasks.c.id)
    )
    return list(rows)


async def unstarted(connection: AsyncConnection, node_id: UUID, task_ids: list[UUID]) -> list[UUID]:
    """Return those of these tasks that are on the node and have not been reported as running."""
    rows = await connection.execute(
        select(tasks.c.id).where(
            tasks.c.id.in_(task_ids), tasks.c.node_id == node_id, tasks.c.status.in_(list(UNSTARTED))
        )
    )
    return sorted(rows.scalars())


async def owned(connection: AsyncConnection, node_id: UUID, task_ids: list[UUID]) -> dict[UUID, list[tuple[str, int]]]:
    """Return those of these tasks that are on the node, with their ports: an agent may only report on its own tasks."""
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.ports).where(tasks.c.id.in_(task_ids), tasks.c.node_id == node_id)
    )
    return {row.id: [(protocol, port) for protocol, port in row.ports or ()] for row in rows}
