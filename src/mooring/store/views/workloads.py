"""Workloads as their owners see them: the list, one of them, and its tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, Integer, Select, and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.access import EVERYTHING, Sight, Target
from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus
from mooring.store import sets
from mooring.store.tables import pools, projects, tasks, timeslots, users, workloads
from mooring.store.types import AnyRow
from mooring.store.views.sight import shown_to

SortKey = Literal["created_at", "name", "status", "priority"]

# All current tasks (no workload but an array has more than 1000) and the newest of those that were replaced.
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
    template: Mapping[str, Any]
    requested_slots: Mapping[str, int]
    architecture: str | None
    region: str | None
    priority: int
    labels: Mapping[str, str]
    gang: bool
    min_tasks: int | None
    single_node: bool
    pack: Sequence[str] | None
    spread: bool
    max_per_node: int | None
    on_insufficient: str
    preempts: bool
    preemptible: bool
    min_available: int | None
    constraints: Mapping[str, Any]
    reason: Mapping[str, Any] | None
    private: bool
    starts_at: datetime | None
    planned_start_at: datetime | None
    time_limit_seconds: int | None
    idle_timeout_seconds: int | None
    idle_warned_at: datetime | None
    warning_signal: str | None
    warning_seconds: int | None
    array: Mapping[str, int] | None
    parallel: int | None
    max_retries: int
    retry_on: Sequence[int] | None
    on_dependency_failure: str
    singleton: str | None
    timeslot_id: UUID | None
    admission: Mapping[str, Any] | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    removed_at: datetime | None
    version: int
    revision: int
    rollout: Mapping[str, Any] | None
    counts: Mapping[str, int]
    """How many of its current tasks have which status."""
    ready: int = 0
    """How many of them are ready."""
    updated: int = 0
    """Those that are ready and of the newest revision."""
    outdated: int = 0
    """Those that are of an older revision."""
    slot_starts_at: datetime | None = None
    slot_lead_seconds: int | None = None
    """Of the timeslot that it runs in."""
    tried_at: datetime | None = None
    """When the first of its waiting tasks may be tried."""
    position: int | None = None
    """Of one that waits: its place in the line of its pool by priority and arrival."""

    @property
    def running(self) -> int:
        return self.counts.get(TaskStatus.RUNNING, 0)

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
    failures: int
    reason: Mapping[str, Any] | None
    devices: Mapping[str, Sequence[tuple[int, int]]] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline_at: datetime | None
    revision: int
    ready_at: datetime | None
    retires_at: datetime | None
    active_at: datetime | None
    digests: Mapping[str, str] | None
    address: str | None


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


def not_before(row: WorkloadRow, at: datetime) -> datetime | None:
    """Until when a workload is not tried; None: it is."""
    times = [row.starts_at, row.tried_at]
    if row.slot_starts_at is not None:
        times.append(row.slot_starts_at - timedelta(seconds=row.slot_lead_seconds or 0))
    return max((time for time in times if time is not None and time > at), default=None)


async def page(
    connection: AsyncConnection, selection: Selection, order: Order, *, limit: int, offset: int
) -> tuple[list[WorkloadRow], int]:
    """One page of the selected workloads, and how many there are in all."""
    conditions = _conditions(selection)
    total = (await connection.execute(select(func.count()).select_from(workloads).where(*conditions))).scalar_one()
    rows = await connection.execute(
        _workloads().where(*conditions).order_by(*_ordering(order)).limit(limit).offset(offset)
    )
    return await _counted(connection, rows.all()), int(total)


async def by_id(connection: AsyncConnection, workload_id: UUID) -> WorkloadRow | None:
    """Whosever it is."""
    rows = await connection.execute(_workloads().where(workloads.c.id == workload_id))
    return next(iter(await _counted(connection, rows.all())), None)


async def by_name(connection: AsyncConnection, name: str, *, user_id: UUID) -> WorkloadRow | None:
    """The user's workload that the name means: one that is not removed and alive before others, then the newest."""
    rows = await connection.execute(
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
    return next(iter(await _counted(connection, rows.all())), None)


async def by_timeslot(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, WorkloadRow]:
    """The workloads in these timeslots, by timeslot; of several in one the first."""
    rows = await connection.execute(
        _workloads().where(sets.among(workloads.c.timeslot_id, ids)).order_by(workloads.c.id.desc())
    )
    found = await _counted(connection, rows.all())
    return {row.timeslot_id: row for row in found if row.timeslot_id is not None}


async def ports_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[int, list[int]]]:
    """The ports of their nodes that the tasks of these workloads were given: by workload, then by task."""
    found: dict[UUID, dict[int, list[int]]] = {}
    for workload_id, index, ports in await connection.execute(
        select(tasks.c.workload_id, tasks.c.task_index, tasks.c.ports).where(
            sets.among(tasks.c.workload_id, ids), tasks.c.current, tasks.c.status.in_(list(OCCUPYING))
        )
    ):
        if ports:
            found.setdefault(workload_id, {})[index] = [number for _, number in ports]
    return found


async def tasks_of(connection: AsyncConnection, workload_id: UUID) -> list[TaskRow]:
    """The tasks by index and attempt: current ones (of a large array the first) and the newest that were replaced."""
    rows = await connection.execute(
        _tasks()
        .where(tasks.c.workload_id == workload_id)
        .order_by(tasks.c.current.desc(), tasks.c.created_at.desc(), tasks.c.task_index, tasks.c.id.desc())
        .limit(_MAX_TASKS)
    )
    return sorted((TaskRow(**row._mapping) for row in rows), key=lambda task: (task.task_index, task.attempt))


async def page_of_tasks(
    connection: AsyncConnection, workload_id: UUID, *, statuses: frozenset[str] | None, limit: int, offset: int
) -> tuple[list[TaskRow], int]:
    """One page of the current tasks by index, and how many there are in all."""
    conditions = [tasks.c.workload_id == workload_id, tasks.c.current]
    if statuses is not None:
        conditions.append(tasks.c.status.in_(sorted(statuses)))
    total = (await connection.execute(select(func.count()).select_from(tasks).where(*conditions))).scalar_one()
    rows = await connection.execute(
        _tasks().where(*conditions).order_by(tasks.c.task_index).limit(limit).offset(offset)
    )
    return [TaskRow(**row._mapping) for row in rows], int(total)


async def progress(connection: AsyncConnection, workload_id: UUID) -> Progress | None:
    row = (
        await connection.execute(
            select(workloads.c.status, workloads.c.ended_at, workloads.c.version).where(workloads.c.id == workload_id)
        )
    ).one_or_none()
    return Progress(row.status, row.ended_at is not None, row.version) if row is not None else None


async def _counted(connection: AsyncConnection, rows: Sequence[AnyRow]) -> list[WorkloadRow]:
    """Workloads with how many of their tasks have which status, all asked at once."""
    counts: dict[UUID, dict[str, int]] = {row.id: {} for row in rows}
    members: dict[UUID, Counter[str]] = {row.id: Counter() for row in rows}
    tried_at: dict[UUID, datetime] = {}
    first = func.min(func.coalesce(tasks.c.not_before, tasks.c.created_at), type_=tasks.c.created_at.type)
    ready = tasks.c.ready_at.is_not(None)
    found = await connection.execute(
        select(
            tasks.c.workload_id,
            tasks.c.status,
            func.count(),
            first,
            _number(ready),
            _number(and_(ready, tasks.c.revision == workloads.c.revision)),
            _number(tasks.c.revision != workloads.c.revision),
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(sets.among(tasks.c.workload_id, counts.keys()), tasks.c.current)
        .group_by(tasks.c.workload_id, tasks.c.status)
    )
    for workload_id, status, number, at, *of_these in found:
        counts[workload_id][status] = number
        members[workload_id].update(dict(zip(("ready", "updated", "outdated"), of_these, strict=True)))
        if status == TaskStatus.PENDING:
            tried_at[workload_id] = at
    line = await _positions(connection, [row.id for row in rows if row.status == WorkloadStatus.PENDING])
    return [
        WorkloadRow(
            **row._mapping,
            counts=counts[row.id],
            ready=members[row.id]["ready"],
            updated=members[row.id]["updated"],
            outdated=members[row.id]["outdated"],
            tried_at=tried_at.get(row.id),
            position=line.get(row.id),
        )
        for row in rows
    ]


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0), type_=Integer())


async def _positions(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, int]:
    """The places of waiting workloads in the lines of their pools."""
    if not ids:
        return {}
    own = workloads.c
    place = func.row_number().over(partition_by=own.pool_id, order_by=(own.priority.desc(), own.created_at, own.id))
    line = select(own.id, place.label("place")).where(own.status == WorkloadStatus.PENDING).subquery()
    found = await connection.execute(select(line.c.id, line.c.place).where(sets.among(line.c.id, ids)))
    return {row.id: row.place for row in found}


def _tasks() -> Select[Any]:
    return select(*(tasks.c[each.name] for each in fields(TaskRow)))


def _workloads() -> Select[Any]:
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
            workloads.c.template,
            workloads.c.requested_slots,
            workloads.c.architecture,
            workloads.c.region,
            workloads.c.priority,
            workloads.c.labels,
            workloads.c.gang,
            workloads.c.min_tasks,
            workloads.c.single_node,
            workloads.c.pack,
            workloads.c.spread,
            workloads.c.max_per_node,
            workloads.c.on_insufficient,
            workloads.c.preempts,
            workloads.c.preemptible,
            workloads.c.min_available,
            workloads.c.constraints,
            workloads.c.reason,
            workloads.c.private,
            workloads.c.starts_at,
            workloads.c.planned_start_at,
            workloads.c.time_limit_seconds,
            workloads.c.idle_timeout_seconds,
            workloads.c.idle_warned_at,
            workloads.c.warning_signal,
            workloads.c.warning_seconds,
            workloads.c.array,
            workloads.c.parallel,
            workloads.c.max_retries,
            workloads.c.retry_on,
            workloads.c.on_dependency_failure,
            workloads.c.singleton,
            workloads.c.timeslot_id,
            timeslots.c.starts_at.label("slot_starts_at"),
            timeslots.c.lead_seconds.label("slot_lead_seconds"),
            workloads.c.admission,
            workloads.c.created_at,
            workloads.c.updated_at,
            workloads.c.started_at,
            workloads.c.ended_at,
            workloads.c.removed_at,
            workloads.c.version,
            workloads.c.revision,
            workloads.c.rollout,
        )
        .join(pools, pools.c.id == workloads.c.pool_id)
        .join(projects, projects.c.id == workloads.c.project_id)
        .join(users, users.c.id == workloads.c.user_id)
        .outerjoin(timeslots, timeslots.c.id == workloads.c.timeslot_id)
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
