"""Workloads and their tasks: written at submission, seen by placement, stopped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.admission import Checked
from mooring.model.constraints import Constraints
from mooring.model.containers import TaskTemplate
from mooring.model.dependencies import Dependency
from mooring.model.lifecycle import OCCUPYING, ON_THE_WAY_OUT, TaskStatus, WorkloadStatus, is_end
from mooring.model.reasons import Reason
from mooring.model.resources import requests_of
from mooring.model.rollouts import Rollout
from mooring.model.slots import slot_type
from mooring.model.tenants import Principal
from mooring.model.terms import NO_TERMS, Terms
from mooring.model.timeslots import Timeslot
from mooring.model.workloads import Kind, OnInsufficient, Task, Workload
from mooring.store import dependencies, events, mounts, older_revisions, rollout_states, sets, templates, transitions
from mooring.store.changes import Applied, Change
from mooring.store.chunks import chunks
from mooring.store.constraints import decode_constraints, encode_constraints
from mooring.store.history import Journal
from mooring.store.loading import lock_workloads
from mooring.store.mounts import Mounted, followed
from mooring.store.older_revisions import Turn
from mooring.store.tables import dependencies as dependency_rows
from mooring.store.tables import pools, resource_allocations, tasks, workload_volumes, workloads
from mooring.store.types import AnyRow

_TYPICAL_KINDS = 100
"""Different requests that make up what is typical."""


SEEN_BY_PLACEMENT = [
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
        "priority",
        "architecture",
        "region",
        "gang",
        "min_tasks",
        "single_node",
        "pack",
        "max_per_node",
        "spread",
        "on_insufficient",
        "placed_before",
        "version",
        "reason",
        "constraints",
        "preempts",
        "type",
        "access_key",
        "private",
        "starts_at",
        "parallel",
        "time_limit_seconds",
        "planned_start_at",
        "singleton",
        "timeslot_id",
        "revision",
    )
] + [workloads.c.template["stop_grace_seconds"].as_integer().label("stop_grace_seconds")]
_PENDING = (
    select(
        tasks.c.workload_id,
        tasks.c.revision,
        tasks.c.id,
        tasks.c.task_index,
        tasks.c.attempt,
        tasks.c.version,
        tasks.c.not_before,
    )
    .where(tasks.c.status == TaskStatus.PENDING, tasks.c.current)
    .order_by(tasks.c.workload_id, tasks.c.task_index)
)
_PENDING_OF = _PENDING.where(sets.among(tasks.c.workload_id))
_PLACED_OF = select(tasks.c.workload_id, tasks.c.node_id, tasks.c.status).where(
    sets.among(tasks.c.workload_id),
    tasks.c.status.in_([*OCCUPYING, TaskStatus.FAILED]),
    tasks.c.node_id.is_not(None),
)
_WAITING = (
    select(*SEEN_BY_PLACEMENT, pools.c.name.label("pool_name"))
    .join(pools, pools.c.id == workloads.c.pool_id)
    .where(
        sets.among(workloads.c.id),
        workloads.c.stopping.is_(False),
        workloads.c.status.not_in(list(ON_THE_WAY_OUT)),
    )
)
_TOLD = select(workloads.c.id, workloads.c.reason["message"].as_string(), workloads.c.planned_start_at).where(
    sets.among(workloads.c.id)
)
_CONSTRAINTS = select(workloads.c.id, workloads.c.constraints).where(sets.among(workloads.c.id))


_ADMISSION = sets.Statement(
    """
    UPDATE workloads AS w SET admission = i.admission, updated_at = {now} FROM {rows} i
    WHERE w.id = i.id AND w.ended_at IS NULL
    """,
    {"id": "uuid", "admission": "jsonb"},
    now="timestamptz",
)


_PLANNED = sets.Statement(
    """
    UPDATE workloads AS w SET planned_start_at = i.planned_start_at, updated_at = {now} FROM {rows} i
    WHERE w.id = i.id AND w.ended_at IS NULL
    """,
    {"id": "uuid", "planned_start_at": "timestamptz"},
    now="timestamptz",
)


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A submission that was validated: what is written is decided here, once, before the transaction."""

    id: UUID
    name: str
    kind: Kind
    type: str
    principal: Principal
    pool_id: UUID
    replicas: int
    template: TaskTemplate
    region: str | None
    priority: int
    labels: Mapping[str, str]
    constraints: Constraints
    gang: bool
    spread: bool
    max_per_node: int | None
    on_insufficient: OnInsufficient
    task_ids: tuple[UUID, ...]
    min_tasks: int | None = None
    single_node: bool = False
    pack: tuple[str, ...] = ()
    preempts: bool = True
    preemptible: bool = True
    min_available: int | None = None
    terms: Terms = NO_TERMS
    timeslot: Timeslot | None = None
    """Written with it, since it is its alone."""
    mounts: tuple[Mounted, ...] = ()
    """The volumes of its project that its tasks mount."""
    rollout: Rollout | None = None
    """Of a deployment: how its tasks are replaced; None: as is usual."""


class NewTask(NamedTuple):
    """A task that waits for a node; `failures`: of the attempts before it."""

    id: UUID
    workload_id: UUID
    task_index: int
    request: Mapping[str, int]
    attempt: int = 1
    not_before: datetime | None = None
    failures: int = 0
    revision: int = 1


async def names_in_use(connection: AsyncConnection, new: Sequence[NewWorkload]) -> dict[tuple[UUID, str], UUID]:
    """Which (user, name) of these are taken by which living workload."""
    rows = await connection.execute(
        select(workloads.c.user_id, workloads.c.name, workloads.c.id).where(
            workloads.c.user_id.in_({w.principal.user_id for w in new}),
            workloads.c.name.in_({w.name for w in new}),
            workloads.c.ended_at.is_(None),
        )
    )
    return {(row.user_id, row.name): row.id for row in rows}


async def submit(connection: AsyncConnection, new: Sequence[NewWorkload], now: datetime) -> None:
    """Write workloads with their tasks PENDING, their ledger rows, history and events: a statement per table."""
    writes = sets.Writes.on(connection)
    sets.insert(writes, workloads, [row_of(w, now) for w in new])
    sets.insert(
        writes,
        dependency_rows,
        [
            {"workload_id": w.id, "depends_on": other, "condition": condition}
            for w in new
            for other, condition in w.terms.dependencies
        ],
    )
    mounted = [{"workload_id": w.id, "volume_id": mount.volume_id} for w in new for mount in w.mounts]
    sets.insert(writes, workload_volumes, mounted)
    wanted = [
        NewTask(task_id, w.id, index, requests_of(w.template)) for w in new for index, task_id in enumerate(w.task_ids)
    ]
    insert_tasks(writes, wanted, now)
    journal = Journal("", now)
    for w in new:
        journal.actor = str(w.principal.user_id)
        created = f"{w.kind.value.capitalize()} created by user"
        journal.note("workload", w.id, w.id, "none", WorkloadStatus.PENDING, created)
        journal.tell(events.NewEvent("workload", w.id, 1, WorkloadStatus.PENDING, None, w.id))
    journal.write(writes)
    await writes.make(connection)


def insert_tasks(writes: sets.Writes, wanted: Sequence[NewTask], now: datetime) -> None:
    sets.insert(
        writes,
        tasks,
        [
            {
                "id": new.id,
                "workload_id": new.workload_id,
                "task_index": new.task_index,
                "attempt": new.attempt,
                "current": True,
                "status": TaskStatus.PENDING,
                "requested_slots": new.request,
                "occupied_slots": {},
                "not_before": new.not_before,
                "failures": new.failures,
                "revision": new.revision,
                "created_at": now,
            }
            for new in wanted
        ],
    )
    ledger = [
        {"task_id": new.id, "slot_name": slot, "requested": amount, "created_at": now}
        for new in wanted
        for slot, amount in new.request.items()
    ]
    sets.insert(writes, resource_allocations, ledger)


def row_of(w: NewWorkload, now: datetime) -> dict[str, Any]:
    return {
        "id": w.id,
        "name": w.name,
        "kind": w.kind,
        "type": w.type,
        "domain_id": w.principal.domain_id,
        "project_id": w.principal.project_id,
        "user_id": w.principal.user_id,
        "access_key": w.principal.access_key,
        "pool_id": w.pool_id,
        "status": WorkloadStatus.PENDING,
        "priority": w.priority,
        "replicas": w.replicas,
        "runtime": w.template.runtime,
        "architecture": w.template.architecture,
        "region": w.region,
        "gang": w.gang,
        "min_tasks": w.min_tasks,
        "single_node": w.single_node,
        "pack": list(w.pack) or None,
        "preempts": w.preempts,
        "preemptible": w.preemptible,
        "min_available": w.min_available,
        "spread": w.spread,
        "max_per_node": w.max_per_node,
        "on_insufficient": w.on_insufficient,
        "template": templates.encode(w.template),
        "requested_slots": requests_of(w.template),
        "labels": dict(w.labels),
        "constraints": encode_constraints(w.constraints),
        "next_index": w.replicas,
        "rollout": None if w.rollout is None else rollout_states.encode(w.rollout),
        **_terms_row(w.terms),
        "created_at": now,
        "updated_at": now,
    }


def _terms_row(terms: Terms) -> dict[str, Any]:
    notice, array = terms.notice, terms.array
    return {
        "private": terms.private,
        "starts_at": terms.starts_at,
        "time_limit_seconds": terms.time_limit_seconds,
        "idle_timeout_seconds": terms.idle_timeout_seconds,
        "warning_signal": None if notice is None else notice.signal,
        "warning_seconds": None if notice is None else notice.seconds,
        "array": None if array is None else {"first": array.first, "step": array.step},
        "parallel": None if array is None else array.parallel,
        "max_retries": terms.max_retries,
        "retry_on": None if terms.retry_on is None else list(terms.retry_on),
        "on_dependency_failure": terms.on_dependency_failure,
        "singleton": terms.singleton,
        "timeslot_id": terms.booking,
    }


async def waiting_ids(connection: AsyncConnection) -> list[UUID]:
    """Of all workloads with tasks that need a node, those that came first before the others."""
    pending = select(tasks.c.workload_id).where(tasks.c.status == TaskStatus.PENDING, tasks.c.current)
    return list((await connection.execute(pending.distinct().order_by(tasks.c.workload_id))).scalars())


async def waiting(connection: AsyncConnection, ids: Sequence[UUID] | None = None) -> list[Workload]:
    """Workloads with tasks that need a node, as placement sees them; all of them, or those of the given ids."""
    pending = connection.execute(_PENDING) if ids is None else connection.execute(_PENDING_OF, {"ids": ids})
    waits: dict[UUID, list[tuple[int, Task]]] = defaultdict(list)
    for workload_id, revision, *facts in await pending:
        waits[workload_id].append((revision, Task(*facts)))
    if not waits:
        return []
    occupied: dict[UUID, dict[UUID, int]] = defaultdict(lambda: defaultdict(int))
    failed_on: dict[UUID, set[UUID]] = defaultdict(set)
    for row in await connection.execute(_PLACED_OF, {"ids": waits.keys()}):
        if row.status == TaskStatus.FAILED:
            failed_on[row.workload_id].add(row.node_id)
        else:
            occupied[row.workload_id][row.node_id] += 1
    rows = (await connection.execute(_WAITING, {"ids": waits.keys()})).all()
    needed = await dependencies.of(connection, waits.keys())
    mounted = await mounts.of_workloads(connection, waits.keys())
    before = await dependencies.turns(connection, [(w.id, w.user_id, w.singleton) for w in rows if w.singleton])
    turns = await older_revisions.next_to_be_placed(connection, {row.id: row.revision for row in rows}, waits)
    return [
        as_placement_sees(
            row,
            [task for revision, task in waits[row.id] if row.id not in turns or revision in turns[row.id].revisions],
            occupied.get(row.id, {}),
            failed_on=frozenset(failed_on.get(row.id, ())),
            needs=needed.get(row.id, ()),
            behind=(before[row.id],) if row.id in before else (),
            mounted=mounted.get(row.id, ()),
            turn=turns.get(row.id),
        )
        for row in rows
    ]


async def told(connection: AsyncConnection, ids: Collection[UUID]) -> list[tuple[UUID, str | None, datetime | None]]:
    """Why workloads wait, as they were told last, and when they were to start."""
    return [(id, message, start) for id, message, start in await connection.execute(_TOLD, {"ids": ids})]


def as_placement_sees(
    row: AnyRow,
    waits: Sequence[Task],
    occupied: Mapping[UUID, int],
    *,
    failed_on: frozenset[UUID] = frozenset(),
    needs: tuple[Dependency, ...] = (),
    behind: tuple[UUID, ...] = (),
    mounted: Sequence[Mounted] = (),
    turn: Turn | None = None,
) -> Workload:
    """A workload's row, with `pool_name`, and the tasks that need a node. `turn`: what these ask for instead of it."""
    constraints = decode_constraints(row.constraints)
    seen = Workload(
        id=row.id,
        name=row.name,
        kind=Kind(row.kind),
        pool=row.pool_name,
        user_id=row.user_id,
        project_id=row.project_id,
        domain_id=row.domain_id,
        runtime=row.runtime,
        request=row.requested_slots if turn is None else turn.request,
        tasks=tuple(waits),
        created_at=row.created_at,
        priority=row.priority,
        architecture=row.architecture if turn is None else turn.architecture,
        region=row.region,
        gang=row.gang,
        min_tasks=row.min_tasks,
        single_node=row.single_node,
        pack=tuple(row.pack or ()),
        max_per_node=row.max_per_node,
        spread=row.spread,
        on_insufficient=OnInsufficient(row.on_insufficient),
        placed_before=row.placed_before,
        occupied=dict(occupied),
        version=row.version,
        waiting_reason=(row.reason or {}).get("message"),
        constraints=replace(constraints, failed_on=failed_on) if failed_on else constraints,
        preempts=row.preempts,
        type=row.type,
        access_key=row.access_key,
        private=row.private,
        starts_at=row.starts_at,
        parallel=row.parallel,
        time_limit_seconds=row.time_limit_seconds,
        planned_start=row.planned_start_at,
        stop_grace_seconds=row.stop_grace_seconds,
        dependencies=needs,
        behind=behind,
        booking=row.timeslot_id,
    )
    return followed(seen, mounted) if mounted else seen


async def note_waiting(connection: AsyncConnection, reasons: Mapping[UUID, Reason], now: datetime) -> None:
    """Store why workloads wait, so that everybody can read it. No status changes, so no history."""
    if not reasons:
        return
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


async def note_planned(connection: AsyncConnection, starts: Mapping[UUID, datetime | None], now: datetime) -> None:
    """Store when workloads start by the plan, None for no longer planned. No status changes, so no history."""
    if starts:
        writes = sets.Writes.on(connection)
        writes.add(_PLANNED, sorted(starts.items()), now=now)
        await writes.make(connection)


async def note_admission(connection: AsyncConnection, looks: Mapping[UUID, Checked], now: datetime) -> None:
    """Store how admission looked at workloads, in place of what it said before. No status changes, so no history."""
    if looks:
        rows = [(id, checked.as_dict()) for id, checked in sorted(looks.items())]
        writes = sets.Writes.on(connection)
        writes.add(_ADMISSION, rows, now=now)
        await writes.make(connection)


async def stop(
    connection: AsyncConnection,
    workload_id: UUID,
    *,
    actor: str,
    now: datetime,
    remove: bool,
    reason: Reason,
    force: bool = False,
) -> Applied:
    """Ask for the end of a workload: what has no node ends at once, the rest when its node says so.

    `force`: the rest is given up as well. It counts on its node until that says that nothing is left of it.
    """
    locked = await lock_workloads(connection, [workload_id])
    workload = locked[workload_id]
    values: dict[str, Any] = {"stopping": True} if workload.ended_at is None else {}
    if remove and workload.removed_at is None:
        values["removed_at"] = now
    if not values:
        return Applied()
    await connection.execute(update(workloads).where(workloads.c.id == workload_id).values(values))
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.status).where(tasks.c.workload_id == workload_id).order_by(tasks.c.id)
    )
    living = [(row.id, status) for row in rows if not is_end(status := TaskStatus(row.status))]
    changes = [ending(task_id, status, reason, force=force) for task_id, status in living]
    return await transitions.apply(connection, changes, actor=actor, now=now, also=[workload_id])


def ending(task_id: UUID, status: TaskStatus, reason: Reason, *, force: bool = False) -> Change:
    """The change that ends a living task from its present status; `force`: whatever its node says."""
    if status in (TaskStatus.PENDING, TaskStatus.RESERVED):
        return Change(task_id, TaskStatus.CANCELLED, reason)
    return (
        Change(task_id, TaskStatus.LOST, reason, freed=False)
        if force
        else Change(task_id, TaskStatus.TERMINATING, reason)
    )


def displacing(task_id: UUID, status: TaskStatus, reason: Reason, *, requeue: bool = False) -> Change:
    """The change for a task that has to leave its node: where a place is only kept, nothing has to end."""
    if status is TaskStatus.RESERVED:
        return Change(task_id, TaskStatus.PENDING, reason)
    return Change(task_id, TaskStatus.TERMINATING, reason, requeue=requeue)


def losing(task_id: UUID, status: TaskStatus, reason: Reason, *, freed: bool) -> Change:
    """The change for a task whose node is lost: one that was never there waits again."""
    if status is TaskStatus.RESERVED:
        return Change(task_id, TaskStatus.PENDING, reason)
    return Change(task_id, TaskStatus.LOST, reason, freed=freed)


async def set_priority(connection: AsyncConnection, workload_id: UUID, priority: int) -> None:
    """The caller tells of it, with what made it change."""
    await connection.execute(update(workloads).where(workloads.c.id == workload_id).values(priority=priority))


async def postpone(connection: AsyncConnection, task_ids: Sequence[UUID], not_before: datetime) -> None:
    """These waiting tasks are not placed before a time."""
    for part in chunks(task_ids):
        await connection.execute(
            update(tasks)
            .where(tasks.c.id.in_(part), tasks.c.status == TaskStatus.PENDING)
            .values(not_before=not_before, version=tasks.c.version + 1)
        )


async def asked_of_devices(
    connection: AsyncConnection, pool_id: UUID, limit: int = 1000
) -> list[tuple[tuple[tuple[str, int], ...], int]]:
    """What the newest workloads of a pool ask for, where devices are among it, with how many tasks asked for it."""
    rows = await connection.execute(
        select(workloads.c.requested_slots, workloads.c.replicas)
        .where(workloads.c.pool_id == pool_id)
        .order_by(workloads.c.created_at.desc(), workloads.c.id)
        .limit(limit)
    )
    asked: Counter[tuple[tuple[str, int], ...]] = Counter()
    for request, replicas in rows:
        if any(amount and slot_type(slot).devices for slot, amount in request.items()):
            asked[tuple(sorted(request.items()))] += replicas
    return asked.most_common(_TYPICAL_KINDS)


async def constraints_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, Constraints]:
    """What the tasks of these workloads demand of their place, and show to others."""
    rows = await connection.execute(_CONSTRAINTS, {"ids": ids})
    return {id: decode_constraints(encoded) for id, encoded in rows}
