"""Workloads for display: lists, single workloads and their tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.clock import now
from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus
from mooring.model.policy.pools import Expectation, PoolPolicy
from mooring.model.tenancy.access import EVERYTHING, Sight, Target
from mooring.model.workloads.lifetime.health import Trouble
from mooring.model.workloads.workload import PLACEMENT_OPTIONS, PlacementOptions
from mooring.store.core import batch_sql
from mooring.store.core.ids import array_task_id
from mooring.store.core.queries import Query
from mooring.store.core.types import AnyRow
from mooring.store.tables import pools, projects, tasks, timeslots, users, workloads
from mooring.store.views.task_trouble import troubles
from mooring.store.views.visibility import shown_to
from mooring.store.workloads.arrays import deferred_count, deferred_status, rows_ahead
from mooring.store.workloads.option_columns import decode_options

SortKey = Literal["created_at", "name", "status", "priority", "start"]

# Enough for all current tasks (only arrays have more than 1000) and the newest replaced ones.
_MAX_TASKS = 1200


@dataclass(frozen=True, slots=True)
class WorkloadRow(PlacementOptions):
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
    labels: Mapping[str, str]
    preemptible: bool
    min_available: int | None
    constraints: Mapping[str, Any]
    reason: Mapping[str, Any] | None
    private: bool
    starts_at: datetime | None
    predicts: bool
    """Its pool plans with predicted run times."""
    planned_start_at: datetime | None
    planned_nodes: Mapping[str, int] | None
    estimated_start_at: datetime | None
    first_start_at: datetime | None
    start_moves: int
    placed_at: datetime | None
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
    deferred: int
    """Number of array tasks that have no row yet."""
    next_index: int
    """Of an array: all indexes below it have a row."""
    counts: Mapping[str, int]
    """Number of current tasks by status, deferred ones included."""
    ready: int = 0
    """Number of current tasks that are ready."""
    updated: int = 0
    """Number of ready tasks of the newest revision."""
    outdated: int = 0
    """Number of current tasks of an older revision."""
    slot_starts_at: datetime | None = None
    slot_lead_seconds: int | None = None
    """Start and lead time of the timeslot that it runs in."""
    tried_at: datetime | None = None
    """The earliest time at which a pending task may be tried."""
    trouble: Trouble | None = None
    """Its tasks that ended before they should and start again."""
    position: int | None = None
    """Position of a pending workload in the queue of its pool; see `_positions`."""

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
    earlier_crashes: int
    crashes: int
    last_exit_code: int | None
    last_reason: Mapping[str, Any] | None
    retry_at: datetime | None
    not_before: datetime | None
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
    """A filter of workloads; None does not restrict."""

    sight: Sight = EVERYTHING
    statuses: frozenset[str] | None = None
    kind: str | None = None
    type: str | None = None
    name: str | None = None
    name_part: str | None = None
    """Part of the name, in any case."""
    pool: str | None = None
    removed: bool = False
    ended_since: datetime | None = None
    """Exclude workloads that ended before this time."""
    starts_after: datetime | None = None
    """Only pending workloads whose planned or estimated start is later."""


@dataclass(frozen=True, slots=True)
class Order:
    by: SortKey = "created_at"
    descending: bool = True
    status_ranks: Mapping[str, int] | None = None
    """Ranks to sort statuses by, instead of by name."""


@dataclass(frozen=True, slots=True)
class WaitState:
    """The attributes of a workload that a wait request checks."""

    status: str
    ended: bool
    version: int


def not_before(row: WorkloadRow, at: datetime) -> datetime | None:
    """Return the time before which a workload is not tried; None if it is eligible now."""
    times = [row.starts_at, row.tried_at]
    if row.slot_starts_at is not None:
        times.append(row.slot_starts_at - timedelta(seconds=row.slot_lead_seconds or 0))
    return max((time for time in times if time is not None and time > at), default=None)


async def page(
    connection: AsyncConnection,
    selection: Selection,
    order: Order,
    *,
    limit: int,
    offset: int,
    with_positions: bool = True,
) -> tuple[list[WorkloadRow], int]:
    """Return one page of the selected workloads, and their total number.

    The ids come first: to sort whole rows takes several times as long. Positions take longer still in a long queue.
    """
    conditions, ordering = _conditions(selection), _ordering(order)
    total = (await connection.execute(select(func.count()).select_from(workloads).where(*conditions))).scalar_one()
    chosen = select(workloads.c.id).where(*conditions).order_by(*ordering).limit(limit).offset(offset)
    ids = (await connection.execute(chosen)).scalars().all()
    rows = await connection.execute(_WORKLOADS.where(batch_sql.among(workloads.c.id, ids)).order_by(*ordering))
    return await _counted(connection, rows.all(), with_positions=with_positions), int(total)


async def by_id(connection: AsyncConnection, workload_id: UUID) -> WorkloadRow | None:
    """Return a workload regardless of its owner."""
    rows = await _BY_ID.rows(connection, workload_id=workload_id)
    return next(iter(await _counted(connection, rows)), None)


async def by_name(connection: AsyncConnection, name: str, *, user_id: UUID) -> WorkloadRow | None:
    """Return the user's workload of this name: not removed before removed, live before ended, then the newest."""
    rows = await _BY_NAME.rows(connection, user_id=user_id, name=name)
    return next(iter(await _counted(connection, rows)), None)


async def by_timeslot(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, WorkloadRow]:
    """Return the workloads in the given timeslots, by timeslot; the oldest if a timeslot has several."""
    rows = await _BY_TIMESLOT.rows(connection, ids=ids)
    found = await _counted(connection, rows)
    return {row.timeslot_id: row for row in found if row.timeslot_id is not None}


async def ports_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[int, list[int]]]:
    """Return the node ports allocated to the tasks of the workloads, by workload, then by task index."""
    found: dict[UUID, dict[int, list[int]]] = {}
    for workload_id, index, ports in await connection.execute(
        select(tasks.c.workload_id, tasks.c.task_index, tasks.c.ports).where(
            batch_sql.among(tasks.c.workload_id, ids),
            tasks.c.current,
            batch_sql.by_other_index(tasks.c.status).in_(list(OCCUPYING)),
        )
    ):
        if ports:
            found.setdefault(workload_id, {})[index] = [number for _, number in ports]
    return found


async def tasks_of(connection: AsyncConnection, workload: WorkloadRow, index: int | None = None) -> list[TaskRow]:
    """Return tasks by index and attempt: the current ones (the first of a large array) and the newest replaced ones.

    With `index`, return only the attempts of that task.
    """
    of_workload = tasks.c.workload_id == workload.id
    rows = await connection.execute(
        _tasks()
        .where(of_workload if index is None else and_(of_workload, tasks.c.task_index == index))
        .order_by(
            tasks.c.current.desc(),
            case((tasks.c.current, tasks.c.task_index), else_=0),
            tasks.c.created_at.desc(),
            tasks.c.id.desc(),
        )
        .limit(_MAX_TASKS)
    )
    found = [TaskRow(**row._mapping) for row in rows]
    if workload.deferred and index is None:
        ahead = await _rows_ahead(connection, workload)
        found += _deferred(workload, _deferred_indexes(workload, ahead), _MAX_TASKS - len(found))
    elif workload.deferred and index is not None and not found and workload.next_index <= index < workload.replicas:
        found += _deferred(workload, [index], 1)
    return sorted(found, key=lambda task: (task.task_index, task.attempt))


async def page_of_tasks(
    connection: AsyncConnection, workload: WorkloadRow, *, statuses: frozenset[str] | None, limit: int, offset: int
) -> tuple[list[TaskRow], int]:
    """Return one page of the current tasks by index, and their total number."""
    conditions = [tasks.c.workload_id == workload.id, tasks.c.current]
    if statuses is not None:
        conditions.append(tasks.c.status.in_(sorted(statuses)))
    with_rows = (await connection.execute(select(func.count()).select_from(tasks).where(*conditions))).scalar_one()
    ordered = _tasks().where(*conditions).order_by(tasks.c.task_index)
    if not workload.deferred or (statuses is not None and _deferred_status(workload) not in statuses):
        rows = await connection.execute(ordered.limit(limit).offset(offset))
        return [TaskRow(**row._mapping) for row in rows], int(with_rows)
    rows = await connection.execute(ordered.where(tasks.c.task_index < workload.next_index).limit(limit).offset(offset))
    page = [TaskRow(**row._mapping) for row in rows]
    # From `next_index` on, deferred tasks alternate with those that were cancelled before they had a row.
    ahead = await _rows_ahead(connection, workload)
    later = ordered.where(tasks.c.task_index >= workload.next_index)
    there = {row.task_index: TaskRow(**row._mapping) for row in await connection.execute(later)} if ahead else {}
    start = max(0, offset - (int(with_rows) - len(there)))
    left_out = ahead - there.keys()
    indexes = (index for index in range(workload.next_index, workload.replicas) if index not in left_out)
    shown = list(islice(indexes, start, start + limit - len(page)))
    deferred = {task.task_index: task for task in _deferred(workload, (i for i in shown if i not in there), limit)}
    return page + [there.get(index) or deferred[index] for index in shown], int(with_rows) + workload.deferred


async def _rows_ahead(connection: AsyncConnection, workload: WorkloadRow) -> Set[int]:
    if workload.deferred == workload.replicas - workload.next_index:
        return frozenset()
    return (await rows_ahead(connection, [workload.id])).get(workload.id, frozenset[int]())


def _deferred_indexes(workload: WorkloadRow, ahead: Set[int]) -> Iterator[int]:
    return (index for index in range(workload.next_index, workload.replicas) if index not in ahead)


def _deferred(workload: WorkloadRow, indexes: Iterable[int], limit: int) -> list[TaskRow]:
    """Return up to `limit` of these deferred tasks of an array, as they will be once they have rows."""
    status = _deferred_status(workload)
    values: dict[str, Any] = dict.fromkeys(each.name for each in fields(TaskRow)) | {
        "attempt": 1,
        "current": True,
        "status": status,
        "restarts": 0,
        "failures": 0,
        "earlier_crashes": 0,
        "crashes": 0,
        "created_at": workload.created_at,
        "ended_at": workload.ended_at,
        "revision": workload.revision,
    }
    shown = islice(indexes, max(0, limit))
    return [TaskRow(**values | {"id": array_task_id(workload.id, index), "task_index": index}) for index in shown]


def _deferred_status(workload: WorkloadRow) -> TaskStatus:
    return deferred_status(ended=workload.ended_at is not None, stopping=workload.stopping)


async def wait_state(connection: AsyncConnection, workload_id: UUID) -> WaitState | None:
    row = (
        await connection.execute(
            select(workloads.c.status, workloads.c.ended_at, workloads.c.version).where(workloads.c.id == workload_id)
        )
    ).one_or_none()
    return WaitState(row.status, row.ended_at is not None, row.version) if row is not None else None


async def _counted(
    connection: AsyncConnection, rows: Sequence[AnyRow], *, with_positions: bool = True
) -> list[WorkloadRow]:
    """Return the workloads with their task counts and queue positions, each read once for all rows."""
    counts: dict[UUID, dict[str, int]] = {row.id: {} for row in rows}
    members: dict[UUID, Counter[str]] = {row.id: Counter() for row in rows}
    tried_at: dict[UUID, datetime] = {}
    found = await _COUNTS.rows(connection, ids=counts.keys())
    for row in rows:
        if row.deferred:
            status = deferred_status(ended=row.ended_at is not None, stopping=row.stopping)
            counts[row.id][status] = row.deferred
            if status is TaskStatus.PENDING:
                tried_at[row.id] = row.created_at
    for workload_id, status, number, at, *of_these in found:
        counts[workload_id][status] = counts[workload_id].get(status, 0) + number
        members[workload_id].update(dict(zip(("ready", "updated", "outdated"), of_these, strict=True)))
        if status == TaskStatus.PENDING:
            tried_at[workload_id] = min(at, tried_at.get(workload_id, at))
    alive = [row.id for row in rows if row.ended_at is None]
    trouble = await troubles(connection, alive, now()) if alive else {}
    pending = [row.id for row in rows if row.status == WorkloadStatus.PENDING] if with_positions else []
    line = await _positions(connection, pending)
    return [
        WorkloadRow(
            **{**row._asdict(), **decode_options(row)},
            counts=counts[row.id],
            ready=members[row.id]["ready"],
            updated=members[row.id]["updated"],
            outdated=members[row.id]["outdated"],
            tried_at=tried_at.get(row.id),
            trouble=trouble.get(row.id),
            position=line.get(row.id),
        )
        for row in rows
    ]


async def _positions(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the positions of pending workloads in the queues of their pools.

    Exact for `fifo` and `lifo`. The other sequencers weigh the current or past usage of users; for them this estimate
    lets users take turns. An explanation uses the pool's actual order.
    """
    if not ids:
        return {}
    found: dict[UUID, int] = {}
    for pool_id, sequencer in await _SEQUENCERS.rows(connection, ids=ids):
        query = _POSITIONS.get(sequencer, _RANKED_POSITIONS)
        found |= {row.id: row.position for row in await query.rows(connection, pool_id=pool_id, ids=ids)}
    return found


def _tasks() -> Select[Any]:
    return select(*(tasks.c[each.name] for each in fields(TaskRow)))


_PREDICTING = (Expectation.RECENT.value, Expectation.PREDICTED.value)


# Statements are built once. Building takes longer than executing, and leaves reference cycles that must be collected.
_WORKLOADS: Select[Any] = (
    select(
        workloads.c.id,
        workloads.c.name,
        workloads.c.kind,
        workloads.c.type,
        workloads.c.status,
        workloads.c.stopping,
        pools.c.simulated,
        pools.c.name.label("pool"),
        func.coalesce(pools.c.options["backfill", "expectation"].as_string(), "").in_(_PREDICTING).label("predicts"),
        workloads.c.domain_id,
        workloads.c.project_id,
        projects.c.name.label("project"),
        workloads.c.user_id,
        users.c.name.label("user"),
        workloads.c.replicas,
        workloads.c.template,
        workloads.c.requested_slots,
        workloads.c.architecture,
        *(workloads.c[name] for name in PLACEMENT_OPTIONS),
        workloads.c.labels,
        workloads.c.preemptible,
        workloads.c.min_available,
        workloads.c.constraints,
        workloads.c.reason,
        workloads.c.private,
        workloads.c.starts_at,
        workloads.c.planned_start_at,
        workloads.c.planned_nodes,
        workloads.c.estimated_start_at,
        workloads.c.first_start_at,
        workloads.c.start_moves,
        workloads.c.placed_at,
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
        deferred_count().label("deferred"),
        workloads.c.next_index,
    )
    .join(pools, pools.c.id == workloads.c.pool_id)
    .join(projects, projects.c.id == workloads.c.project_id)
    .join(users, users.c.id == workloads.c.user_id)
    .outerjoin(timeslots, timeslots.c.id == workloads.c.timeslot_id)
)
_BY_ID = Query(_WORKLOADS.where(workloads.c.id == bindparam("workload_id")))
_BY_NAME = Query(
    _WORKLOADS.where(workloads.c.user_id == bindparam("user_id"), workloads.c.name == bindparam("name"))
    .order_by(
        workloads.c.removed_at.is_not(None),
        workloads.c.ended_at.is_not(None),
        workloads.c.created_at.desc(),
        workloads.c.id.desc(),
    )
    .limit(1)
)
_BY_TIMESLOT = Query(_WORKLOADS.where(batch_sql.among(workloads.c.timeslot_id)).order_by(workloads.c.id.desc()))


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0), type_=Integer())


def _counts() -> Select[Any]:
    first = func.min(func.coalesce(tasks.c.not_before, tasks.c.created_at), type_=tasks.c.created_at.type)
    ready = tasks.c.ready_at.is_not(None)
    return (
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
        .where(batch_sql.among(tasks.c.workload_id), tasks.c.current)
        .group_by(tasks.c.workload_id, tasks.c.status)
    )


_COUNTS = Query(_counts())


def _sequencers() -> Select[Any]:
    sequencer = func.coalesce(pools.c.options["sequencer"].as_string(), PoolPolicy("").sequencer)
    of_ids = workloads.join(pools, pools.c.id == workloads.c.pool_id)
    return select(pools.c.id, sequencer).distinct().select_from(of_ids).where(batch_sql.among(workloads.c.id))


_SEQUENCERS = Query(_sequencers())
_PENDING = select(workloads.c.id, workloads.c.priority, workloads.c.created_at).where(
    workloads.c.pool_id == bindparam("pool_id"),
    workloads.c.status == WorkloadStatus.PENDING,
)


def _positions_by(pending: Select[Any], *order: ColumnElement[Any]) -> Select[Any]:
    placed = pending.add_columns(func.row_number().over(order_by=order).label("position")).subquery()
    return select(placed.c.id, placed.c.position).where(batch_sql.among(placed.c.id))


def _ranked_positions() -> Select[Any]:
    own = workloads.c
    rank = func.row_number().over(partition_by=(own.priority, own.user_id), order_by=(own.created_at, own.id))
    ranked = _PENDING.add_columns(rank.label("rank")).subquery()
    return _positions_by(select(ranked), ranked.c.priority.desc(), ranked.c.rank, ranked.c.created_at, ranked.c.id)


_PRIORITY, _CREATED_AT, _ID = workloads.c.priority, workloads.c.created_at, workloads.c.id
_POSITIONS = {
    "fifo": Query(_positions_by(_PENDING, _PRIORITY.desc(), _CREATED_AT, _ID)),
    "lifo": Query(_positions_by(_PENDING, _PRIORITY.desc(), _CREATED_AT.desc(), _ID.desc())),
}
_RANKED_POSITIONS = Query(_ranked_positions())


_starts_at = func.coalesce(workloads.c.planned_start_at, workloads.c.estimated_start_at)


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
    if selection.name_part is not None:
        conditions.append(workloads.c.name.icontains(selection.name_part, autoescape=True))
    if selection.pool is not None:
        conditions.append(workloads.c.pool_id.in_(select(pools.c.id).where(pools.c.name == selection.pool)))
    if selection.starts_after is not None:
        conditions += [workloads.c.status == WorkloadStatus.PENDING, _starts_at > selection.starts_after]
    if selection.ended_since is not None:
        conditions.append(or_(workloads.c.ended_at.is_(None), workloads.c.ended_at >= selection.ended_since))
    return conditions


def _ordering(order: Order) -> list[ColumnElement[Any]]:
    key: ColumnElement[Any] = _starts_at if order.by == "start" else workloads.c[order.by]
    if order.by == "status" and order.status_ranks is not None:
        key = case(dict(order.status_ranks), value=workloads.c.status, else_=len(order.status_ranks))
    # The id breaks ties, newest first because ids grow with time, so that pages do not overlap.
    return [key.desc() if order.descending else key.asc(), workloads.c.id.desc()]
