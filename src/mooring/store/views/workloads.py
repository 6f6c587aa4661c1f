"""Workloads as their owners see them: the list, one of them, and its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, Select, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import EVERYTHING, Sight, Target
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import pools, projects, tasks, users, workloads
from mooring.store.views.sight import shown_to

SortKey = Literal["created_at", "name", "status", "priority"]

# All current tasks (a workload has at most 1000) and the newest of those that were replaced.
_MAX_TASKS = 1200


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    id: UUID
    name: str
    kind: str
    type: str
    status: str
    stopping: bool
    simulated: bool
    pool: str
    domain_id: UUID
    project_id: UUID
    project: str
    user_id: UUID
    user: str
    replicas: int
    running: int
    template: Mapping[str, Any]
    requested_slots: Mapping[str, int]
    region: str | None
    priority: int
    labels: Mapping[str, str]
    gang: bool
    min_tasks: int | None
    single_node: bool
    pack: Sequence[str] | None
    preempts: bool
    preemptible: bool
    min_available: int | None
    constraints: Mapping[str, Any]
    reason: Mapping[str, Any] | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    removed_at: datetime | None
    version: int

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.project_id, self.user_id)


@dataclass(frozen=True, slots=True)
class TaskRow:
    id: UUID
    task_index: int
    attempt: int
    current: bool
    status: str
    node_id: UUID | None
    node_name: str | None
    score: int | None
    exit_code: int | None
    restarts: int
    reason: Mapping[str, Any] | None
    devices: Mapping[str, Sequence[tuple[int, int]]] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which workloads are meant; None does not restrict."""

    sight: Sight = EVERYTHING
    statuses: frozenset[str] | None = None
    kind: str | None = None
    type: str | None = None
    name: str | None = None
    removed: bool = False
    ended_since: datetime | None = None
    """Leaves out what ended before."""


@dataclass(frozen=True, slots=True)
class Order:
    by: SortKey = "created_at"
    descending: bool = True
    status_ranks: Mapping[str, int] | None = None
    """Sorts statuses by these ranks instead of by their names."""


@dataclass(frozen=True, slots=True)
class Progress:
    """As much of a workload as a waiter looks at."""

    status: str
    ended: bool
    version: int


async def page(
    connection: AsyncConnection, selection: Selection, order: Order, *, limit: int, offset: int
) -> tuple[list[WorkloadRow], int]:
    """One page of the selected workloads, and how many there are in all."""
    conditions = _conditions(selection)
    total = (await connection.execute(select(func.count()).select_from(workloads).where(*conditions))).scalar_one()
    rows = await connection.execute(
        _workloads().where(*conditions).order_by(*_ordering(order)).limit(limit).offset(offset)
    )
    return [WorkloadRow(**row._mapping) for row in rows], int(total)


async def by_id(connection: AsyncConnection, workload_id: UUID) -> WorkloadRow | None:
    """Whosever it is."""
    row = (await connection.execute(_workloads().where(workloads.c.id == workload_id))).one_or_none()
    return WorkloadRow(**row._mapping) if row is not None else None


async def by_name(connection: AsyncConnection, name: str, *, user_id: UUID) -> WorkloadRow | None:
    """The user's workload that the name means: one that is not removed and alive before others, then the newest."""
    row = (
        await connection.execute(
            _workloads()
            .where(workloads.c.user_id == user_id, workloads.c.name == name)
            .order_by(
                workloads.c.removed_at.is_not(None),
                workloads.c.ended_at.is_not(None),
                workloads.c.created_at.desc(),
                workloads.c.id.desc(),
            )
            .limit(1)
        )
    ).one_or_none()
    return WorkloadRow(**row._mapping) if row is not None else None


async def tasks_of(connection: AsyncConnection, workload_id: UUID) -> list[TaskRow]:
    """The tasks by index and attempt; of attempts that were replaced long ago only the newest."""
    rows = await connection.execute(
        select(
            tasks.c.id,
            tasks.c.task_index,
            tasks.c.attempt,
            tasks.c.current,
            tasks.c.status,
            tasks.c.node_id,
            tasks.c.node_name,
            tasks.c.score,
            tasks.c.exit_code,
            tasks.c.restarts,
            tasks.c.reason,
            tasks.c.devices,
            tasks.c.created_at,
            tasks.c.started_at,
            tasks.c.ended_at,
        )
        .where(tasks.c.workload_id == workload_id)
        .order_by(tasks.c.current.desc(), tasks.c.created_at.desc(), tasks.c.id.desc())
        .limit(_MAX_TASKS)
    )
    return sorted((TaskRow(**row._mapping) for row in rows), key=lambda task: (task.task_index, task.attempt))


async def progress(connection: AsyncConnection, workload_id: UUID) -> Progress | None:
    row = (
        await connection.execute(
            select(workloads.c.status, workloads.c.ended_at, workloads.c.version).where(workloads.c.id == workload_id)
        )
    ).one_or_none()
    return Progress(row.status, row.ended_at is not None, row.version) if row is not None else None


def _workloads() -> Select[Any]:
    running = (
        select(func.count())
        .select_from(tasks)
        .where(tasks.c.workload_id == workloads.c.id, tasks.c.current, tasks.c.status == TaskStatus.RUNNING)
        .correlate(workloads)
        .scalar_subquery()
    )
    return (
        select(
            workloads.c.id,
            workloads.c.name,
            workloads.c.kind,
            workloads.c.type,
            workloads.c.status,
            workloads.c.stopping,
            pools.c.simulated,
            pools.c.name.label("pool"),
            workloads.c.domain_id,
            workloads.c.project_id,
            projects.c.name.label("project"),
            workloads.c.user_id,
            users.c.name.label("user"),
            workloads.c.replicas,
            running.label("running"),
            workloads.c.template,
            workloads.c.requested_slots,
            workloads.c.region,
            workloads.c.priority,
            workloads.c.labels,
            workloads.c.gang,
            workloads.c.min_tasks,
            workloads.c.single_node,
            workloads.c.pack,
            workloads.c.preempts,
            workloads.c.preemptible,
            workloads.c.min_available,
            workloads.c.constraints,
            workloads.c.reason,
            workloads.c.created_at,
            workloads.c.updated_at,
            workloads.c.started_at,
            workloads.c.ended_at,
            workloads.c.removed_at,
            workloads.c.version,
        )
        .join(pools, pools.c.id == workloads.c.pool_id)
        .join(projects, projects.c.id == workloads.c.project_id)
        .join(users, users.c.id == workloads.c.user_id)
    )


def _conditions(selection: Selection) -> list[ColumnElement[bool]]:
    removed_at = workloads.c.removed_at
    conditions: list[ColumnElement[bool]] = [
        removed_at.is_not(None) if selection.removed else removed_at.is_(None),
        shown_to(selection.sight),
    ]
    if selection.statuses is not None:
        conditions.append(workloads.c.status.in_(sorted(selection.statuses)))
    if selection.kind is not None:
        conditions.append(workloads.c.kind == selection.kind)
    if selection.type is not None:
        conditions.append(workloads.c.type == selection.type)
    if selection.name is not None:
        conditions.append(workloads.c.name == selection.name)
    if selection.ended_since is not None:
        conditions.append(or_(workloads.c.ended_at.is_(None), workloads.c.ended_at >= selection.ended_since))
    return conditions


def _ordering(order: Order) -> list[ColumnElement[Any]]:
    key: ColumnElement[Any] = workloads.c[order.by]
    if order.by == "status" and order.status_ranks is not None:
        key = case(dict(order.status_ranks), value=workloads.c.status, else_=len(order.status_ranks))
    # The id, which grows with time, decides between equals: newest first, so that pages do not overlap.
    return [key.desc() if order.descending else key.asc(), workloads.c.id.desc()]
