"""Holds: capacity reserved for placements that agents prepare for, or that wait for victims to leave.

`transitions` writes the rows together with the status of their tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, literal, literal_column, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.lifecycle import OCCUPYING, NodeStatus, TaskStatus
from mooring.model.policy.holds import Hold, Purpose
from mooring.model.reasons import Reason
from mooring.store.commit import placement_revisions, transitions
from mooring.store.commit.locked_workloads import load, lock_nodes
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.control import events
from mooring.store.core.chunks import chunks
from mooring.store.nodes.pools import MAX_TASKS, policy_of
from mooring.store.tables import (
    device_allocations,
    holds,
    node_devices,
    node_resources,
    nodes,
    pools,
    port_allocations,
    resource_allocations,
    tasks,
)


@dataclass(frozen=True, slots=True)
class HeldWorkload:
    """A workload with holds. `ready`: its agents have prepared all tasks, or preparation is not required."""

    workload_id: UUID
    purpose: Purpose
    expires_at: datetime
    ready: bool


async def held_workloads(connection: AsyncConnection, workload_id: UUID | None = None) -> list[HeldWorkload]:
    """Return the workloads with holds, oldest hold first; with `workload_id`, only that one."""
    unprepared = func.count().filter(tasks.c.prepared_at.is_(None))
    query = (
        select(
            holds.c.workload_id,
            func.max(holds.c.purpose).label("purpose"),
            func.min(holds.c.expires_at).label("expires_at"),
            unprepared.label("unprepared"),
        )
        .join(tasks, tasks.c.id == holds.c.task_id)
        .group_by(holds.c.workload_id)
        .order_by(func.min(holds.c.created_at), holds.c.workload_id)
    )
    if workload_id is not None:
        query = query.where(holds.c.workload_id == workload_id)
    rows = await connection.execute(query)
    return [
        HeldWorkload(r.workload_id, Purpose(r.purpose), r.expires_at, r.purpose != Purpose.PREPARE or not r.unprepared)
        for r in rows
    ]


async def mark_prepared(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> None:
    """Mark tasks as prepared by their agents, and clear their progress message.

    Tasks that are not held, or are marked already, stay unchanged.
    """
    new_events: list[events.NewEvent] = []
    for part in chunks(sorted(task_ids)):
        rows = await connection.execute(
            update(tasks)
            .where(tasks.c.id.in_(part), tasks.c.status == TaskStatus.RESERVED, tasks.c.prepared_at.is_(None))
            .values(prepared_at=now, reason=null())
            .returning(tasks.c.id, tasks.c.version, tasks.c.workload_id)
        )
        new_events += [events.NewEvent("task", row.id, row.version, "prepared", None, row.workload_id) for row in rows]
    await events.append(connection, new_events, now)


async def extend(connection: AsyncConnection, task_ids: Sequence[UUID], now: datetime) -> None:
    """Extend the holds of workloads whose agents report progress, up to the maximum of their pools."""
    for part in chunks(sorted(task_ids)):
        found = await connection.execute(
            select(holds.c.workload_id, func.min(holds.c.created_at).label("since"), pools)
            .join(tasks, tasks.c.id == holds.c.task_id)
            .join(nodes, nodes.c.id == holds.c.node_id)
            .join(pools, pools.c.id == nodes.c.pool_id)
            .where(holds.c.task_id.in_(part), holds.c.purpose == Purpose.PREPARE)
            .group_by(holds.c.workload_id, pools.c.id)
        )
        for row in found.all():
            policy = policy_of(row)
            longest = timedelta(seconds=max(policy.hold_seconds, policy.hold_max_seconds))
            until = min(now + timedelta(seconds=policy.hold_seconds), row.since + longest)
            own = and_(holds.c.workload_id == row.workload_id, holds.c.expires_at < until)
            await connection.execute(update(holds).where(own).values(expires_at=until))


async def preparation_message(connection: AsyncConnection, workload_id: UUID) -> str | None:
    """Return the last progress message of the first task that is not prepared, if there is one."""
    rows = await connection.execute(
        select(tasks.c.reason)
        .where(tasks.c.workload_id == workload_id, tasks.c.status == TaskStatus.RESERVED, tasks.c.prepared_at.is_(None))
        .order_by(tasks.c.id)
    )
    return next(
        (reason["message"] for reason in rows.scalars() if reason is not None and reason["by"] == "agent"), None
    )


async def held_tasks(connection: AsyncConnection, task_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return one held task of each workload, of those among these tasks."""
    found: dict[UUID, UUID] = {}
    for part in chunks(task_ids):
        rows = await connection.execute(
            select(holds.c.workload_id, holds.c.task_id).where(holds.c.task_id.in_(part)).order_by(holds.c.workload_id)
        )
        found.update((row.workload_id, row.task_id) for row in rows)
    return found


async def by_workload(connection: AsyncConnection, workload_id: UUID) -> list[Hold]:
    """Return the holds of a workload, expired ones included."""
    return await _read(connection, holds.c.workload_id == workload_id)


async def admit(
    connection: AsyncConnection, workload_id: UUID, *, actor: str, now: datetime, term: int | None = None
) -> Applied | None:
    """Move all held tasks of a workload from RESERVED to SCHEDULED.

    Return None while the victims have not left yet, and while the pool is paused. Earlier preemptors are admitted
    first: the holds of later preemptors are ignored, everything else on the node counts.
    """
    loaded = await load(connection, workload_ids=[workload_id])
    held = await by_workload(connection, workload_id)
    if not held:
        raise Conflict("this workload has no hold", code="hold-unknown")
    if any(hold.is_expired(now) for hold in held):
        raise Conflict("the hold expired at " + min(h.expires_at for h in held).isoformat(), code="hold-expired")
    pool = loaded.workloads[workload_id].pool
    if (await placement_revisions.lock(connection, [pool]))[pool].paused:
        return None
    loaded.locked_nodes.update(hold.node_id for hold in held)
    await lock_nodes(connection, loaded.locked_nodes)
    await _check_nodes(connection, held)
    if not await _has_capacity(connection, held):
        return None
    changes = [Change(hold.task_id, TaskStatus.SCHEDULED) for hold in held]
    return await transitions.apply(connection, changes, actor=actor, now=now, term=term, loaded=loaded)


async def release(
    connection: AsyncConnection,
    workload_id: UUID,
    reason: Reason,
    *,
    actor: str,
    now: datetime,
    term: int | None = None,
) -> Applied:
    """Release the holds of a workload: its tasks are pending again. Without holds, nothing happens."""
    loaded = await load(connection, workload_ids=[workload_id])
    changes = [
        Change(task.id, TaskStatus.PENDING, reason)
        for task in loaded.tasks.values()
        if task.status is TaskStatus.RESERVED
    ]
    return await transitions.apply(connection, changes, actor=actor, now=now, term=term, loaded=loaded)


async def _read(connection: AsyncConnection, condition: ColumnElement[bool]) -> list[Hold]:
    rows = await connection.execute(select(holds).where(condition).order_by(holds.c.id))
    return [
        Hold(r.id, r.task_id, r.workload_id, r.node_id, Purpose(r.purpose), r.created_at, r.expires_at) for r in rows
    ]


async def _check_nodes(connection: AsyncConnection, held: list[Hold]) -> None:
    rows = await connection.execute(
        select(nodes.c.name).where(
            nodes.c.id.in_({hold.node_id for hold in held}),
            or_(nodes.c.status != NodeStatus.READY, nodes.c.schedulable.is_(False)),
        )
    )
    name = rows.scalars().first()
    if name is not None:
        raise Conflict(f"node {name} accepts no tasks", code="hold-broken")


async def _has_capacity(connection: AsyncConnection, held: list[Hold]) -> bool:
    """Return whether the held amounts, devices, ports and task counts are really available."""
    node_ids = {hold.node_id for hold in held}
    task_ids = [hold.task_id for hold in held]
    # Ids increase with time.
    later = select(holds.c.task_id).where(
        holds.c.node_id.in_(node_ids), holds.c.purpose == Purpose.PREEMPT, holds.c.id > max(h.id for h in held)
    )
    ledger = resource_allocations.c
    reserved_for_later = (
        select(func.coalesce(func.sum(ledger.held), 0))
        .join(tasks, tasks.c.id == ledger.task_id)
        .where(
            ledger.task_id.in_(later),
            tasks.c.node_id == node_resources.c.node_id,
            ledger.slot_name == node_resources.c.slot_name,
        )
        .scalar_subquery()
    )
    wanted = (
        select(tasks.c.node_id, ledger.slot_name)
        .join(tasks, tasks.c.id == ledger.task_id)
        .where(ledger.task_id.in_(task_ids))
        .distinct()
        .subquery()
    )
    counter = node_resources.c
    too_little = (
        select(literal(1))
        .select_from(node_resources)
        .join(wanted, and_(wanted.c.node_id == counter.node_id, wanted.c.slot_name == counter.slot_name))
        .where(counter.held + counter.reserved + counter.used - reserved_for_later > counter.allocatable)
    )
    given, others = device_allocations.alias("given"), device_allocations.alias("others")
    device = node_devices.c
    taken_devices = (
        select(literal(1))
        .select_from(given)
        .join(others, _same(given, others, "node_id", "slot_name", "device_index"))
        .join(node_devices, _same(given, node_devices, "node_id", "slot_name", "device_index"))
        .where(given.c.task_id.in_(task_ids), others.c.freed_at.is_(None), others.c.task_id.not_in(later))
        .group_by(given.c.task_id, device.node_id, device.slot_name, device.device_index, device.capacity)
        .having(func.sum(others.c.amount) > device.capacity)
    )
    too_many = (
        select(literal(1))
        .select_from(nodes)
        .join(pools, pools.c.id == nodes.c.pool_id)
        .join(tasks, tasks.c.node_id == nodes.c.id)
        .where(nodes.c.id.in_(node_ids), tasks.c.status.in_(list(OCCUPYING)), tasks.c.id.not_in(later))
        .group_by(nodes.c.id, pools.c.id)
        .having(func.count() > literal_column(MAX_TASKS))
    )
    for query in (too_little, taken_devices, too_many):
        if (await connection.execute(query.limit(1))).first() is not None:
            return False
    return await _ports_are_free(connection, task_ids, node_ids)


async def _ports_are_free(connection: AsyncConnection, task_ids: list[UUID], node_ids: set[UUID]) -> bool:
    own = (await connection.execute(select(tasks.c.node_id, tasks.c.ports).where(tasks.c.id.in_(task_ids)))).all()
    wanted = {(row.node_id, protocol, port) for row in own for protocol, port in row.ports or ()}
    if not wanted:
        return True
    taken = await connection.execute(
        select(port_allocations.c.node_id, port_allocations.c.protocol, port_allocations.c.port).where(
            port_allocations.c.node_id.in_(node_ids), port_allocations.c.task_id.not_in(task_ids)
        )
    )
    return wanted.isdisjoint((row.node_id, row.protocol, row.port) for row in taken)


def _same(one: Any, other: Any, *columns: str) -> ColumnElement[bool]:
    return and_(*(one.c[name] == other.c[name] for name in columns))
