"""Timeslots with their places: written as requests, and moved on by their bookers and by the leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.lifecycle import NodeStatus
from mooring.model.reasons import Reason
from mooring.model.slots import Amounts
from mooring.model.timeslots import OVER, TIMESLOT_EDGES, Timeslot, TimeslotKind, TimeslotStatus
from mooring.store import events, sets
from mooring.store.constraints import decode_constraints, encode_constraints
from mooring.store.differences import OCCUPYING_LIST
from mooring.store.events import NewEvent
from mooring.store.history import Journal
from mooring.store.occupancy import AMOUNT
from mooring.store.tables import nodes, pools, timeslot_places, timeslot_series, timeslots, workloads
from mooring.store.types import AnyRow, as_uuid

_MOVE = sets.Statement(
    """
    UPDATE timeslots SET status = i.status, reason = i.reason, version = timeslots.version + 1, updated_at = {now},
        ended_at = CASE WHEN i.over THEN {now} END
    FROM {rows} i WHERE timeslots.id = i.id AND timeslots.version = i.version AND timeslots.status = i.was
    RETURNING timeslots.id
    """,
    {"id": "uuid", "version": "bigint", "was": "text", "status": "text", "reason": "jsonb", "over": "boolean"},
    now="timestamptz",
)
_OCCUPIED = sets.Statement(
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
    """Bookings that one rule made, in the wall time of a zone."""

    id: UUID
    rule: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Move:
    """A timeslot as it was read, and what becomes of it; the same status with other places moves it elsewhere."""

    slot: Timeslot
    status: TimeslotStatus
    reason: Reason | None = None
    places: Mapping[UUID, int] | None = None
    """None: as before."""


async def insert(
    connection: AsyncConnection,
    slots: Sequence[Timeslot],
    now: datetime,
    series: Series | None = None,
    *,
    actor: str = "timeslots",
) -> None:
    """Write new timeslots of pools that are there, with places where they have some: a statement per table.

    `series`: the new one that they belong to.
    """
    names = {slot.pool for slot in slots}
    found = await connection.execute(select(pools.c.name, pools.c.id).where(pools.c.name.in_(names)))
    pool_ids = {row.name: row.id for row in found}
    writes = sets.Writes.on(connection)
    if series is not None:
        row = {"id": series.id, "rule": series.rule, "timezone": series.timezone, "created_at": now}
        sets.insert(writes, timeslot_series, [row])
    sets.insert(writes, timeslots, [_row(slot, pool_ids[slot.pool], now) for slot in slots])
    sets.insert(writes, timeslot_places, [place for slot in slots for place in _places(slot.id, slot.places)])
    journal = Journal(actor, now)
    for slot in slots:
        journal.note("timeslot", slot.id, None, "none", slot.status, None)
        journal.tell(NewEvent("timeslot", slot.id, slot.version, slot.status))
    journal.write(writes)
    await writes.make(connection)


async def live_ids(connection: AsyncConnection) -> list[UUID]:
    """Of all that are not over, the oldest first."""
    live = select(timeslots.c.id).where(timeslots.c.ended_at.is_(None)).order_by(timeslots.c.id)
    return list((await connection.execute(live)).scalars())


async def load(connection: AsyncConnection, ids: Sequence[UUID] | None = None) -> list[Timeslot]:
    """These timeslots, or all that are not over; the oldest first."""
    return await _load(
        connection, timeslots.c.status.not_in(sorted(OVER)) if ids is None else sets.among(timeslots.c.id, ids)
    )


async def series_of(connection: AsyncConnection, timeslot_id: UUID) -> list[Timeslot]:
    """All of the series that a timeslot belongs to, itself included; nothing if it belongs to none."""
    series = select(timeslots.c.series_id).where(timeslots.c.id == timeslot_id).scalar_subquery()
    return await _load(connection, timeslots.c.series_id == series)


async def changes_of(connection: AsyncConnection, timeslot_id: UUID) -> list[Timeslot]:
    """What was asked for in place of a timeslot and is not decided yet."""
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
    places = await places_of(connection, [row.id for row in found])
    return [as_timeslot(row, places.get(row.id, {})) for row in found]


async def at_risk(connection: AsyncConnection) -> list[tuple[Timeslot, int]]:
    """The timeslots that have lost room, and of how many of their tasks: as was said then, or more by now."""
    rows = await connection.execute(
        select(timeslots.c.id, timeslots.c.reason).where(timeslots.c.status == TimeslotStatus.AT_RISK)
    )
    reasons = {row.id: row.reason or {} for row in rows}
    if not reasons:
        return []
    found = await load(connection, sorted(reasons))
    here = sets.among(nodes.c.id, sorted({node_id for slot in found for node_id in slot.places}))
    alive = select(nodes.c.id).where(here, nodes.c.status.in_([NodeStatus.READY, NodeStatus.SUSPECT]))
    places = set((await connection.execute(alive)).scalars())
    missing: list[tuple[Timeslot, int]] = []
    for slot in found:
        kept = sum(tasks for node_id, tasks in slot.places.items() if node_id in places)
        said = reasons[slot.id].get("details", {}).get("missing", 0)
        missing.append((slot, max(said, slot.count - kept)))
    return missing


async def places_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[UUID, int]]:
    """Per timeslot how many of its tasks have their room on which node."""
    found: dict[UUID, dict[UUID, int]] = defaultdict(dict)
    for timeslot_id, node_id, number in await connection.execute(
        select(timeslot_places).where(sets.among(timeslot_places.c.timeslot_id, ids))
    ):
        found[timeslot_id][node_id] = number
    return found


async def move(
    connection: AsyncConnection,
    changes: Sequence[Move],
    now: datetime,
    *,
    actor: str = "timeslots",
    term: int | None = None,
) -> list[Timeslot]:
    """Those of the timeslots that were still as they had been read, as they are now; the others are left alone.

    One that is confirmed takes the place of the one that it replaces, with the work in it.
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
    moved = {as_uuid(id) for (id,) in await _MOVE.read(connection, rows, now=now)}
    made = [change for change in changes if change.slot.id in moved]
    after = [_after(change) for change in made]
    await _set_places(connection, made)
    writes = sets.Writes.on(connection)
    journal = Journal(actor, now, term)
    for change, slot in zip(made, after, strict=True):
        if change.status is not change.slot.status:
            message = None if change.reason is None else change.reason.message
            journal.note("timeslot", slot.id, None, change.slot.status, slot.status, message)
        kind = slot.status if change.status is not change.slot.status else "moved"
        details = None if change.reason is None else change.reason.as_dict()
        journal.tell(NewEvent("timeslot", slot.id, slot.version, kind, details=details))
    journal.write(writes)
    await writes.make(connection)
    confirmed = {slot.replaces: slot.id for slot in after if slot.replaces and slot.status is TimeslotStatus.CONFIRMED}
    return after + await _replace(connection, confirmed, now, actor=actor, term=term)


async def shorten(connection: AsyncConnection, slot: Timeslot, ends_at: datetime, now: datetime) -> Timeslot:
    """End a timeslot sooner than was said, which needs nobody's leave."""
    written = await connection.execute(
        update(timeslots)
        .where(timeslots.c.id == slot.id, timeslots.c.version == slot.version)
        .values(ends_at=ends_at, version=slot.version + 1, updated_at=now)
    )
    if written.rowcount != 1:
        raise Conflict(f"timeslot {slot.name!r} has changed meanwhile; look at it again", code="timeslot-changed")
    await events.append(connection, [NewEvent("timeslot", slot.id, slot.version + 1, "changed")], now)
    return replace(slot, ends_at=ends_at, version=slot.version + 1)


async def occupied(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, dict[UUID, Amounts]]:
    """What the work in these timeslots occupies now, by timeslot and node; what is lost is of no use to them."""
    sums: dict[UUID, dict[UUID, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    if ids:
        for timeslot_id, node_id, slot, amount in await _OCCUPIED.read(connection, [(id,) for id in ids]):
            sums[as_uuid(timeslot_id)][as_uuid(node_id)][slot] = int(amount)
    return {timeslot_id: dict(nodes) for timeslot_id, nodes in sums.items()}


def as_timeslot(row: AnyRow, places: Mapping[UUID, int]) -> Timeslot:
    """A row of timeslots, with `pool_name`."""
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
        places=places,
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
        "created_at": now,
        "updated_at": now,
    }


def _places(timeslot_id: UUID, places: Mapping[UUID, int]) -> Iterable[dict[str, Any]]:
    return (
        {"timeslot_id": timeslot_id, "node_id": node_id, "tasks": number} for node_id, number in sorted(places.items())
    )


def _check_legal(change: Move) -> None:
    old, new = change.slot.status, change.status
    stays = new is old and change.places is not None
    if not stays and new not in TIMESLOT_EDGES[old]:
        raise ValueError(f"timeslot {change.slot.id}: {old} never becomes {new}")


def _after(change: Move) -> Timeslot:
    places = change.slot.places if change.places is None else change.places
    return replace(change.slot, status=change.status, places=places, version=change.slot.version + 1)


async def _set_places(connection: AsyncConnection, changes: Sequence[Move]) -> None:
    placed = {change.slot.id: change.places for change in changes if change.places is not None}
    if placed:
        await connection.execute(delete(timeslot_places).where(sets.among(timeslot_places.c.timeslot_id, placed)))
        writes = sets.Writes.on(connection)
        sets.insert(writes, timeslot_places, [row for id, places in placed.items() for row in _places(id, places)])
        await writes.make(connection)


async def _replace(
    connection: AsyncConnection, confirmed: Mapping[UUID, UUID], now: datetime, *, actor: str, term: int | None
) -> list[Timeslot]:
    """The timeslots that gave way to others, each with its successor's id; their work goes on in those."""
    if not confirmed:
        return []
    replaced = [slot for slot in await load(connection, list(confirmed)) if slot.status not in OVER]
    news: list[NewEvent] = []
    for slot in replaced:
        guests = await connection.execute(
            update(workloads)
            .where(workloads.c.timeslot_id == slot.id, workloads.c.ended_at.is_(None))
            .values(timeslot_id=confirmed[slot.id], version=workloads.c.version + 1, updated_at=now)
            .returning(workloads.c.id, workloads.c.version)
        )
        news += [NewEvent("workload", guest.id, guest.version, "rebooked", None, guest.id) for guest in guests]
    await events.append(connection, news, now, term)
    reasons = {
        slot.id: Reason("replaced", "Its change was confirmed", "user", details={"by": str(confirmed[slot.id])})
        for slot in replaced
    }
    gone = [Move(slot, TimeslotStatus.CANCELLED, reasons[slot.id]) for slot in replaced]
    return await move(connection, gone, now, actor=actor, term=term)
