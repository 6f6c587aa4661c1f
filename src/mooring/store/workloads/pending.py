"""Pending workloads: read as placement sees them, and the reasons, plans and estimates stored about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TERMINATING_OR_ENDED, TaskStatus
from mooring.model.reasons import Reason
from mooring.model.tenancy.admission import Checked
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.dependencies import Dependency
from mooring.model.workloads.workload import (
    PLACEMENT_OPTIONS,
    Kind,
    Task,
    Workload,
)
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.chunks import chunks
from mooring.store.core.constraint_columns import stored_constraints
from mooring.store.core.queries import Query, rows_of
from mooring.store.core.types import AnyRow
from mooring.store.tables import dependencies as dependency_rows
from mooring.store.tables import pools, tasks, workload_volumes, workloads
from mooring.store.workloads import (
    arrays,
    dependencies,
    mounts,
    older_revisions,
)
from mooring.store.workloads.mounts import Mounted, followed
from mooring.store.workloads.older_revisions import RevisionRequest
from mooring.store.workloads.option_columns import decode_options

_READ_CONSTRAINTS = stored_constraints(workloads.c.constraints)
PLACEMENT_COLUMNS = [
    workloads.c[name]
    for name in (
        "id",
        "name",
        "kind",
        "user_id",
        "project_id",
        "domain_id",
        "runtime",
        "requested_slots",
        "created_at",
        "architecture",
        "placed_before",
        "version",
        "reason",
        "type",
        "access_key",
        "private",
        "starts_at",
        "parallel",
        "time_limit_seconds",
        "planned_start_at",
        "planned_nodes",
        "singleton",
        "timeslot_id",
        "revision",
        "replicas",
        "next_index",
        *PLACEMENT_OPTIONS,
    )
] + [
    _READ_CONSTRAINTS,
    workloads.c.template["stop_grace_seconds"].as_integer().label("stop_grace_seconds"),
    workloads.c.array.is_not(None).label("is_array"),
]
_STATUS = batch_sql.by_other_index(tasks.c.status)
_PENDING_OF = Query(
    select(
        tasks.c.workload_id,
        tasks.c.revision,
        tasks.c.nominated_node,
        tasks.c.id,
        tasks.c.task_index,
        tasks.c.attempt,
        tasks.c.version,
        tasks.c.not_before,
    )
    .where(batch_sql.among(tasks.c.workload_id), _STATUS == TaskStatus.PENDING, tasks.c.current)
    .order_by(tasks.c.workload_id, tasks.c.task_index)
)
_HAS_NODE = _STATUS.in_([*OCCUPYING, TaskStatus.FAILED]) & tasks.c.node_id.is_not(None)
_PLACED_OF = select(tasks.c.workload_id, tasks.c.node_id, tasks.c.status).where(
    batch_sql.among(tasks.c.workload_id), _HAS_NODE
)
_WAITING = Query(
    select(
        *PLACEMENT_COLUMNS,
        pools.c.name.label("pool_name"),
        # Most workloads have none of these, which then need no query of their own.
        arrays.has_deferred().label("has_deferred"),
        exists().where(tasks.c.workload_id == workloads.c.id, _HAS_NODE).label("has_placed"),
        exists().where(dependency_rows.c.workload_id == workloads.c.id).label("has_dependencies"),
        exists().where(workload_volumes.c.workload_id == workloads.c.id).label("has_mounts"),
    )
    .join(pools, pools.c.id == workloads.c.pool_id)
    .where(
        batch_sql.among(workloads.c.id),
        workloads.c.stopping.is_(False),
        workloads.c.status.not_in(list(TERMINATING_OR_ENDED)),
    )
)
_STORED_REASONS = select(
    workloads.c.id,
    workloads.c.reason["code"].as_string(),
    workloads.c.reason["message"].as_string(),
    workloads.c.planned_start_at,
    workloads.c.planned_nodes,
).where(batch_sql.among(workloads.c.id))
_CONSTRAINTS = Query(select(workloads.c.id, _READ_CONSTRAINTS).where(batch_sql.among(workloads.c.id)))
_ADMISSION = batch_sql.Statement(
    """
    UPDATE workloads AS w SET admission = i.admission, updated_at = {now} FROM {rows} i
    WHERE w.id = i.id AND w.ended_at IS NULL
    """,
    {"id": "uuid", "admission": "jsonb"},
    now="timestamptz",
)
# A prediction that is replaced by a later one has moved, whether it was planned or estimated. The first one stays.
_PREDICTED = """
    first_start_at = CASE WHEN w.placed_at IS NULL THEN coalesce(w.first_start_at, i.{start}) ELSE w.first_start_at END,
    start_moves = w.start_moves + CASE
        WHEN i.{start} > coalesce(w.planned_start_at, w.estimated_start_at, w.first_start_at) THEN 1 ELSE 0 END
"""
_PLANNED = batch_sql.Statement(
    f"""
    UPDATE workloads AS w SET
        planned_start_at = i.planned_start_at, planned_nodes = i.planned_nodes, updated_at = {{now}},
        {_PREDICTED.format(start="planned_start_at")}
    FROM {{rows}} i WHERE w.id = i.id AND w.ended_at IS NULL
    """,
    {"id": "uuid", "planned_start_at": "timestamptz", "planned_nodes": "jsonb"},
    now="timestamptz",
)
_ESTIMATED = batch_sql.Statement(
    f"""
    UPDATE workloads AS w SET estimated_start_at = i.estimated_start_at,
        {_PREDICTED.format(start="estimated_start_at")}
    FROM {{rows}} i WHERE w.id = i.id AND w.ended_at IS NULL
    """,
    {"id": "uuid", "estimated_start_at": "timestamptz"},
)


async def waiting_ids(connection: AsyncConnection) -> list[UUID]:
    """Return all workloads with tasks that need a node, oldest first."""
    pending = select(tasks.c.workload_id).where(tasks.c.status == TaskStatus.PENDING, tasks.c.current)
    deferred = select(workloads.c.id).where(arrays.has_deferred())
    return sorted((await connection.execute(pending.union(deferred))).scalars())


async def waiting(connection: AsyncConnection, ids: Sequence[UUID] | None = None) -> list[Workload]:
    """Return workloads with tasks that need a node, as placement sees them: all, or those of the given ids."""
    given = await waiting_ids(connection) if ids is None else ids
    asked = {"ids": given}
    found, pending = await rows_of(connection, (_WAITING, asked), (_PENDING_OF, asked)) if given else ([], [])
    waits: dict[UUID, list[tuple[int, Task]]] = defaultdict(list)
    nominations: dict[UUID, set[str]] = defaultdict(set)
    for workload_id, revision, nominated, *facts in pending:
        waits[workload_id].append((revision, Task(*facts)))
        if nominated is not None:
            nominations[workload_id].add(nominated)
    rows = [row for row in found if row.id in waits or row.has_deferred]
    placed = await _placed_tasks(connection, [row.id for row in rows if row.has_placed])
    needed = await dependencies.of(connection, [row.id for row in rows if row.has_dependencies])
    mounted = await mounts.of_workloads(connection, [row.id for row in rows if row.has_mounts])
    before = await dependencies.singleton_predecessors(
        connection, [(w.id, w.user_id, w.singleton) for w in rows if w.singleton]
    )
    ahead = await arrays.rows_ahead(connection, [row.id for row in rows if row.is_array])
    revision_requests = await older_revisions.next_revision_requests(
        connection, {row.id: row.revision for row in rows}, waits
    )
    return [
        as_workload(
            row,
            _to_place(row, waits[row.id], revision_requests.get(row.id), ahead.get(row.id, frozenset())),
            placed.occupied.get(row.id, {}),
            failed_on=frozenset(placed.failed_on.get(row.id, ())),
            nominated=frozenset(nominations.get(row.id, ())),
            needs=needed.get(row.id, ()),
            behind=(before[row.id],) if row.id in before else (),
            mounted=mounted.get(row.id, ()),
            override=revision_requests.get(row.id),
        )
        for row in rows
    ]


class _PlacedTasks(NamedTuple):
    occupied: Mapping[UUID, Mapping[UUID, int]]
    """By workload, the number of tasks on each node."""
    failed_on: Mapping[UUID, Set[UUID]]
    """By workload, the nodes on which tasks have failed."""


async def _placed_tasks(connection: AsyncConnection, ids: Collection[UUID]) -> _PlacedTasks:
    occupied: dict[UUID, dict[UUID, int]] = defaultdict(lambda: defaultdict(int))
    failed_on: dict[UUID, set[UUID]] = defaultdict(set)
    if ids:
        for workload_id, node_id, status in await connection.execute(_PLACED_OF, {"ids": ids}):
            if status == TaskStatus.FAILED:
                failed_on[workload_id].add(node_id)
            else:
                occupied[workload_id][node_id] += 1
    return _PlacedTasks(occupied, failed_on)


def _to_place(
    row: AnyRow, pending: Sequence[tuple[int, Task]], override: RevisionRequest | None, ahead: Set[int]
) -> list[Task]:
    """Return the pending tasks, limited to the revisions of `override` if given, and the deferred tasks of an array."""
    found = [task for revision, task in pending if override is None or revision in override.revisions]
    return [*found, *arrays.deferred_tasks(row.id, row.next_index, row.replicas, ahead)] if row.is_array else found


class StoredReason(NamedTuple):
    """Stored reason of a pending workload, and its planned start with its nodes."""

    workload_id: UUID
    code: str | None
    message: str | None
    planned_start: datetime | None
    planned_nodes: Mapping[str, int] | None


class PlannedStart(NamedTuple):
    at: datetime
    nodes: Mapping[str, int] | None
    """The nodes of the tasks that start then, with their numbers."""


async def stored_reasons(connection: AsyncConnection, ids: Collection[UUID]) -> list[StoredReason]:
    return [StoredReason(*row) for row in await connection.execute(_STORED_REASONS, {"ids": ids})]


def as_workload(
    row: AnyRow,
    waits: Sequence[Task],
    occupied: Mapping[UUID, int],
    *,
    failed_on: frozenset[UUID] = frozenset(),
    nominated: frozenset[str] = frozenset(),
    needs: tuple[Dependency, ...] = (),
    behind: tuple[UUID, ...] = (),
    mounted: Sequence[Mounted] = (),
    override: RevisionRequest | None = None,
) -> Workload:
    """Return a workload from its row, with `pool_name`, and its unplaced tasks. `override` replaces its request."""
    constraints = row.constraints
    if nominated:
        # Preferred to all other nodes; where the workload is bound to its designated nodes, it may use only those.
        bound = constraints.designated_strictly
        chosen = nominated & constraints.designated if bound else nominated
        constraints = replace(constraints, designated=chosen or constraints.designated)
    seen = Workload(
        id=row.id,
        name=row.name,
        kind=Kind(row.kind),
        pool=row.pool_name,
        user_id=row.user_id,
        project_id=row.project_id,
        domain_id=row.domain_id,
        runtime=row.runtime,
        request=row.requested_slots if override is None else override.request,
        tasks=tuple(waits),
        created_at=row.created_at,
        architecture=row.architecture if override is None else override.architecture,
        placed_before=row.placed_before,
        occupied=dict(occupied),
        version=row.version,
        waiting_reason=(row.reason or {}).get("message"),
        waiting_code=(row.reason or {}).get("code"),
        constraints=replace(constraints, failed_on=failed_on) if failed_on else constraints,
        type=row.type,
        access_key=row.access_key,
        private=row.private,
        starts_at=row.starts_at,
        is_array=row.is_array,
        parallel=row.parallel,
        time_limit_seconds=row.time_limit_seconds,
        planned_start=row.planned_start_at,
        planned_nodes=row.planned_nodes,
        stop_grace_seconds=row.stop_grace_seconds,
        dependencies=needs,
        behind=behind,
        booking=row.timeslot_id,
        **decode_options(row),
    )
    return followed(seen, mounted) if mounted else seen


async def note_waiting(
    connection: AsyncConnection,
    reasons: Mapping[UUID, Reason],
    now: datetime,
    *,
    announced: Collection[UUID] = (),
    term: int | None = None,
) -> None:
    """Store why workloads are pending. No status changes, so there is no history; those `announced` get an event."""
    if not reasons:
        return
    unschedulable = [
        events.NewEvent("workload", each, 0, events.UNSCHEDULABLE, workload_id=each, details=reasons[each].as_dict())
        for each in sorted(announced)
    ]
    await events.append(connection, unschedulable, now, term)
    await connection.execute(
        update(workloads)
        .where(workloads.c.id == bindparam("workload"), workloads.c.ended_at.is_(None))
        .values(
            reason=bindparam("new_reason", type_=workloads.c.reason.type),
            updated_at=now,
            version=workloads.c.version + 1,
        ),
        [{"workload": w, "new_reason": reason.as_dict()} for w, reason in sorted(reasons.items())],
    )


async def note_planned(connection: AsyncConnection, starts: Mapping[UUID, PlannedStart | None], now: datetime) -> None:
    """Store the planned starts of workloads, None if no longer planned. No status changes, so there is no history."""
    if starts:
        rows = [(id, None, None) if start is None else (id, start.at, start.nodes) for id, start in starts.items()]
        writes = batch_sql.Writes.on(connection)
        writes.add(_PLANNED, sorted(rows, key=itemgetter(0)), now=now)
        await writes.execute(connection)


async def note_estimated(connection: AsyncConnection, starts: Mapping[UUID, datetime | None]) -> None:
    """Store the estimated starts of workloads, None if unknown. No status changes, so there is no history."""
    if starts:
        writes = batch_sql.Writes.on(connection)
        writes.add(_ESTIMATED, sorted(starts.items()))
        await writes.execute(connection)


async def note_admission(connection: AsyncConnection, checks: Mapping[UUID, Checked], now: datetime) -> None:
    """Store the latest result of admission for workloads. No status changes, so there is no history."""
    if checks:
        rows = [(id, checked.as_dict()) for id, checked in sorted(checks.items())]
        writes = batch_sql.Writes.on(connection)
        writes.add(_ADMISSION, rows, now=now)
        await writes.execute(connection)


async def set_priority(connection: AsyncConnection, workload_id: UUID, priority: int) -> None:
    """Set the priority. The caller emits the event, together with the cause."""
    await connection.execute(update(workloads).where(workloads.c.id == workload_id).values(priority=priority))


async def postpone(connection: AsyncConnection, task_ids: Sequence[UUID], not_before: datetime) -> None:
    """Hold these pending tasks back until a time."""
    for part in chunks(task_ids):
        await connection.execute(
            update(tasks)
            .where(tasks.c.id.in_(part), tasks.c.status == TaskStatus.PENDING)
            .values(not_before=not_before, version=tasks.c.version + 1)
        )


async def constraints_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, Constraints]:
    """Return the constraints of these workloads' tasks: their demands on nodes, and what other tasks can match."""
    return {row.id: row.constraints for row in await _CONSTRAINTS.rows(connection, ids=ids)} if ids else {}
