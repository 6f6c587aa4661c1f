"""Timeslots with their placements: written as requests, changed by their owners and by the leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import (
    OVER,
    TIMESLOT_EDGES,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts
from mooring.store.accounting.occupancy import AMOUNT
from mooring.store.audit.ledger_diff import OCCUPYING_LIST
from mooring.store.commit.history import ChangeLog
from mooring.store.control import events
from mooring.store.control.events import NewEvent
from mooring.store.core import batch_sql
from mooring.store.core.constraint_columns import decode_constraints, encode_constraints
from mooring.store.core.types import AnyRow, as_uuid
from mooring.store.tables import nodes, pools, timeslot_places, timeslot_series, timeslots, workloads

_UPDATE = batch_sql.Statement(
    """
    UPDATE timeslots SET status = i.status, reason = i.reason, version = timeslots.version + 1, updated_at = {now},
        ended_at = CASE WHEN i.over THEN {now} END
    FROM {rows} i WHERE timeslots.id = i.id AND timeslots.version = i.version AND timeslots.status = i.was
    RETURNING timeslots.id
    """,
    {"id": "uuid", "version": "bigint", "was": "text", "status": "text", "reason": "jsonb", "over": "boolean"},
    now="timestamptz",
)
_OCCUPIED = batch_sql.Statement(
    f"""
    SELECT w.timeslot_id, t.node_id, a.slot_name, sum({AMOUNT}) FROM {{rows}} i
    JOIN workloads w ON w.timeslot_id = i.id JOIN tasks t ON t.workload_id = w.id
    JOIN resource_allocations a ON a.task_id = t.id
    WHERE a.freed_at IS NULL AND t.status IN ({OCCUPYING_LIST}) GROUP BY w.timeslot_id, t.node_id, a.slot_name
    """,
    {"id": "uuid"},
)


@dataclass(frozen=True, slots=True)
class Series:
    """Bookings created by one recurrence rule, in the wall time of a time zone."""

    id: UUID
    rule: str
    timezone: str


@dataclass(frozen=True, slots=True)
class TimeslotUpdate:
    """Timeslot as it was read, with its new status; the same status with new placements moves it to other nodes."""

    slot: Timeslot
    status: TimeslotStatus
    reason: Reason | None = None
    placements: Mapping[UUID, int] | None = None
    """New placements; None to leave them unchanged."""


async def insert(
    connection: AsyncConnection,
    slots: Sequence[Timeslot],
    now: datetime,
    series: Series | None = None,
    *,
    actor: str = "timeslots",
) -> None:
    """Write new timeslots of existing pools, with their placements if they have any: one statement per table.

    `series` is the new series that they belong to.
    """
    names = {slot.pool for slot in slots}
    found = await connection.execute(select(pools.c.name, pools.c.id).where(pools.c.name.in_(names)))
    pool_ids = {row.name: row.id for row in found}
    writes = batch_sql.Writes.on(connection)
    if series is not None:
        row = {"id": series.id, "rule": series.rule, "timezone": series.timezone, "created_at": now}
        batch_sql.insert(writes, timeslot_series, [row])
    batch_sql.insert(writes, timeslots, [_row(slot, pool_ids[slot.pool], now) for slot in slots])
    batch_sql.insert(
        writes,
        timeslot_places,
        [placement for slot in slots for placement in _placement_rows(slot.id, slot.placements)],
    )
    log = ChangeLog(actor, now)
    for slot in slots:
        log.add_status("timeslot", slot.id, None, "none", slot.status, None)
        log.add_event(NewEvent("timeslot", slot.id, slot.version, slot.status))
    log.write(writes)
    await writes.execute(connection)


async def live_ids(connection: AsyncConnection) -> list[UUID]:
    """Return the timeslots that are not over, oldest first."""
    live = select(timeslots.c.id).where(timeslots.c.ended_at.is_(None)).order_by(timeslots.c.id)
    return list((await connection.execute(live)).scalars())


async def load(connection: AsyncConnection, ids: Sequence[UUID] | None = None) -> list[Timeslot]:
    """Return these timeslots, or all that are not over; oldest first."""
    return await _load(
        connection, timeslots.c.status.not_in(sorted(OVER)) if ids is None else batch_sql.among(timeslots.c.id, ids)
    )


async def lock(connection: AsyncConnection, timeslot_id: UUID, *, series: bool = False) -> None:
    """Lock a timeslot and the requests to change it; with `series`, its whole series.

    Without the lock, a change by the leader between read and write would make a user's request fail.
    """
    related = or_(timeslots.c.id == timeslot_id, timeslots.c.replaces == timeslot_id)
    if series:
        own = select(timeslots.c.series_id).where(timeslots.c.id == timeslot_id).scalar_subquery()
        related = or_(related, timeslots.c.series_id == own)
    await connection.execute(select(timeslots.c.id).where(related).order_by(timeslots.c.id).with_for_update())


async def series_of(connection: AsyncConnection, timeslot_id: UUID) -> list[Timeslot]:
    """Return the whole series of a timeslot, including itself; empty if it belongs to none."""
    series = select(timeslots.c.series_id).where(timeslots.c.id == timeslot_id).scalar_subquery()
    return await _load(connection, timeslots.c.series_id == series)


async def changes_of(connection: AsyncConnection, timeslot_id: UUID) -> list[Timeslot]:
    """Return the undecided requests to change a timeslot."""
    requested = timeslots.c.status == TimeslotStatus.REQUESTED
    return await _load(connection, requested & (timeslots.c.replaces == timeslot_id))


async def _load(connection: AsyncConnection, condition: ColumnElement[bool]) -> list[Timeslot]:
    rows = await connection.execute(
        select(timeslots, pools.c.name.label("pool_name"))
        .join(pools, pools.c.id == timeslots.c.pool_id)
        .where(condition)
        .order_by(timeslots.c.id)
    )
    found = rows.all()
    placements = await placements_of(connection, [row.id for row in found])
    return [as_timeslot(row, placements.get(row.id, {})) for row in found]


async def at_risk(connection: AsyncConnection) -> list[tuple[Timeslot, int]]:
    """Return the timeslots at risk, each with its number of tasks without capacity: as recorded, or more by now."""
    rows = await connection.execute(
        select(timeslots.c.id, timeslots.c.reason).where(timeslots.c.status == TimeslotStatus.AT_RISK)
    )
    reasons = {row.id: row.reason or {} for row in rows}
    if not reasons:
        return []
    found = await load(connection, sorted(reasons))
    here = batch_sql.among(nodes.c.id, sorted({node_id for slot in found for node_id in slot.placements}))
    alive = select(nodes.c.id).where(here, nodes.c.status.in_([NodeStatus.READY, NodeStatus.SUSPECT]))
    alive_nodes = set((await connection.execute(alive)).scalars())
    missing: list[tuple[Timeslot, int]] = []
    for slot in found:
        remaining = sum(tasks for node_id, tasks in slot.placements.items() if node_id in alive_nodes)
        said = reasons[slot.id].get("details", {}).get("missing", 0)
        missing.append((slot, max(said, slot.count - remaining)))
    return missing


async def placements_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[UUID, int]]:
    """Return the number of tasks placed on each node, by timeslot."""
    found: dict[UUID, dict[UUID, int]] = defaultdict(dict)
    for timeslot_id, node_id, number in await connection.execute(
        select(timeslot_places).where(batch_sql.among(timeslot_places.c.timeslot_id, ids))
    ):
        found[timeslot_id][node_id] = number
    return found


async def apply_updates(
    connection: AsyncConnection,
    changes: Sequence[TimeslotUpdate],
    now: datetime,
    *,
    actor: str = "timeslots",
    term: int | None = None,
) -> list[Timeslot]:
    """Apply changes to the timeslots that have not changed since they were read; return the timeslots changed.

    The others are skipped. A confirmed timeslot replaces the one it was requested for and takes over its workloads.
    """
    for change in changes:
        _check_legal(change)
    if not changes:
        return []
    rows = [
        (
            change.slot.id,
            change.slot.version,
            change.slot.status,
            change.status,
            None if change.reason is None else change.reason.as_dict(),
            change.status in OVER,
        )
        for change in changes
    ]
    updated = {as_uuid(id) for (id,) in await _UPDATE.read(connection, rows, now=now)}
    made = [change for change in changes if change.slot.id in updated]
    after = [_after(change) for change in made]
    await _set_placements(connection, made)
    writes = batch_sql.Writes.on(connection)
    log = ChangeLog(actor, now, term)
    for change, slot in zip(made, after, strict=True):
        if change.status is not change.slot.status:
            message = None if change.reason is None else change.reason.message
            log.add_status("timeslot", slot.id, None, change.slot.status, slot.status, message)
        kind = slot.status if change.status is not change.slot.status else "moved"
        details = None if change.reason is None else change.reason.as_dict()
        log.add_event(NewEvent("timeslot", slot.id, slot.version, kind, details=details))
    log.write(writes)
    await writes.execute(connection)
    confirmed = {slot.replaces: slot.id for slot in after if slot.replaces and slot.status is TimeslotStatus.CONFIRMED}
    return after + await _replace(connection, confirmed, now, actor=actor, term=term)


async def shorten(connection: AsyncConnection, slot: Timeslot, ends_at: datetime, now: datetime) -> Timeslot:
    """End a timeslot earlier than planned, which needs no confirmation."""
    written = await connection.execute(
        update(timeslots)
        .where(timeslots.c.id == slot.id, timeslots.c.version == slot.version)
        .values(ends_at=ends_at, version=slot.version + 1, updated_at=now)
    )
    if written.rowcount != 1:
        raise Conflict(f"booking {slot.name!r} has changed in the meantime; read it again", code="timeslot-changed")
    await events.append(connection, [NewEvent("timeslot", slot.id, slot.version + 1, "changed")], now)
    return replace(slot, ends_at=ends_at, version=slot.version + 1)


async def occupied(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[UUID, Amounts]]:
    """Return the amounts that workloads in these timeslots occupy, by timeslot and node; lost tasks do not count."""
    sums: dict[UUID, dict[UUID, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    if ids:
        for timeslot_id, node_id, slot, amount in await _OCCUPIED.read(connection, [(id,) for id in ids]):
            sums[as_uuid(timeslot_id)][as_uuid(node_id)][slot] = int(amount)
    return {timeslot_id: dict(nodes) for timeslot_id, nodes in sums.items()}


def as_timeslot(row: AnyRow, placements: Mapping[UUID, int]) -> Timeslot:
    """Return the timeslot of a row, which includes `pool_name`."""
    return Timeslot(
        id=row.id,
        name=row.name,
        kind=TimeslotKind(row.kind),
        pool=row.pool_name,
        status=TimeslotStatus(row.status),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        lead_seconds=row.lead_seconds,
        grace_seconds=row.grace_seconds,
        request=row.requested_slots,
        count=row._mapping[timeslots.c.count],
        constraints=decode_constraints(row.constraints),
        architecture=row.architecture,
        region=row.region,
        user_id=row.user_id,
        project_id=row.project_id,
        domain_id=row.domain_id,
        access_key=row.access_key,
        purpose=row.purpose,
        users=frozenset(map(UUID, row.users)),
        projects=frozenset(map(UUID, row.projects)),
        release_after_seconds=row.release_after_seconds,
        series_id=row.series_id,
        replaces=row.replaces,
        calendar_uid=row.calendar_uid,
        placements=placements,
        version=row.version,
    )


def _row(slot: Timeslot, pool_id: UUID, now: datetime) -> dict[str, Any]:
    return {
        "id": slot.id,
        "name": slot.name,
        "kind": slot.kind,
        "pool_id": pool_id,
        "domain_id": slot.domain_id,
        "project_id": slot.project_id,
        "user_id": slot.user_id,
        "access_key": slot.access_key,
        "purpose": slot.purpose,
        "status": slot.status,
        "eligible_at": slot.eligible_at,
        "starts_at": slot.starts_at,
        "ends_at": slot.ends_at,
        "lead_seconds": slot.lead_seconds,
        "grace_seconds": slot.grace_seconds,
        "requested_slots": dict(slot.request),
        "count": slot.count,
        "architecture": slot.architecture,
        "region": slot.region,
        "constraints": encode_constraints(slot.constraints),
        "users": sorted(map(str, slot.users)),
        "projects": sorted(map(str, slot.projects)),
        "release_after_seconds": slot.release_after_seconds,
        "series_id": slot.series_id,
        "replaces": slot.replaces,
        "calendar_uid": slot.calendar_uid,
        "created_at": now,
        "updated_at": now,
    }


def _placement_rows(timeslot_id: UUID, placements: Mapping[UUID, int]) -> Iterable[dict[str, Any]]:
    return (
        {"timeslot_id": timeslot_id, "node_id": node_id, "tasks": number}
        for node_id, number in sorted(placements.items())
    )


def _check_legal(change: TimeslotUpdate) -> None:
    old, new = change.slot.status, change.status
    stays = new is old and change.placements is not None
    if not stays and new not in TIMESLOT_EDGES[old]:
        raise ValueError(f"booking {change.slot.id}: {old} cannot become {new}")


def _after(change: TimeslotUpdate) -> Timeslot:
    placements = change.slot.placements if change.placements is None else change.placements
    return replace(change.slot, status=change.status, placements=placements, version=change.slot.version + 1)


async def _set_placements(connection: AsyncConnection, changes: Sequence[TimeslotUpdate]) -> None:
    placed = {change.slot.id: change.placements for change in changes if change.placements is not None}
    if placed:
        await connection.execute(delete(timeslot_places).where(batch_sql.among(timeslot_places.c.timeslot_id, placed)))
        writes = batch_sql.Writes.on(connection)
        batch_sql.insert(
            writes,
            timeslot_places,
            [row for id, placements in placed.items() for row in _placement_rows(id, placements)],
        )
        await writes.execute(connection)


async def _replace(
    connection: AsyncConnection, confirmed: Mapping[UUID, UUID], now: datetime, *, actor: str, term: int | None
) -> list[Timeslot]:
    """Cancel the timeslots that confirmed ones replace, and move their live workloads; return the cancelled ones."""
    if not confirmed:
        return []
    replaced = [slot for slot in await load(connection, list(confirmed)) if slot.status not in OVER]
    new_events: list[NewEvent] = []
    for slot in replaced:
        rebooked = await connection.execute(
            update(workloads)
            .where(workloads.c.timeslot_id == slot.id, workloads.c.ended_at.is_(None))
            .values(timeslot_id=confirmed[slot.id], version=workloads.c.version + 1, updated_at=now)
            .returning(workloads.c.id, workloads.c.version)
        )
        new_events += [
            NewEvent("workload", workload.id, workload.version, "rebooked", None, workload.id) for workload in rebooked
        ]
    await events.append(connection, new_events, now, term)
    reasons = {
        slot.id: Reason("replaced", "Its change was confirmed", "user", details={"by": str(confirmed[slot.id])})
        for slot in replaced
    }
    gone = [TimeslotUpdate(slot, TimeslotStatus.CANCELLED, reasons[slot.id]) for slot in replaced]
    return await apply_updates(connection, gone, now, actor=actor, term=term)
