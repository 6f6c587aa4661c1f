"""Timeslots with a step due, their use, and workloads that outlive them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, bindparam, case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import OVER, Timeslot, TimeslotStatus
from mooring.model.lifecycle import OCCUPYING
from mooring.model.reasons import Reason
from mooring.store.control import events
from mooring.store.control.events import NewEvent
from mooring.store.core import batch_sql
from mooring.store.reservations.timeslots import as_timeslot, placements_of
from mooring.store.tables import pools, tasks, timeslot_series, timeslots, workloads

ENDS_SOON = "ends-soon"
"""Kind of the event that warns a timeslot's users of its end."""
_LIMIT = 1000
_LATELY = timedelta(days=1)
"""Age limit for ended workloads: earlier ends were handled before, or are handled when the lead begins."""


class DueTimeslot(NamedTuple):
    """Timeslot, and whether its users were notified that it ends soon."""

    slot: Timeslot
    noticed: bool


class TimeslotUse(NamedTuple):
    """State of the workloads inside a timeslot."""

    living: int
    """Number of workloads that have not ended."""
    ended: int
    placed: bool
    """True if any of them ever had a node."""
    present: bool
    """True if any of their tasks is on a node."""
    left_at: datetime | None
    """Time at which the last of their tasks left its node."""


UNUSED = TimeslotUse(0, 0, False, False, None)


class OverdueWorkload(NamedTuple):
    """Workload whose timeslot is over."""

    workload_id: UUID
    status: TimeslotStatus
    reason: Reason | None
    placed: bool
    """True if any of its tasks is on a node."""


async def due(connection: AsyncConnection, now: datetime) -> tuple[list[DueTimeslot], datetime | None]:
    """Return the live timeslots whose lead has begun or whose workloads have ended, and the time of the next lead."""
    of_those, of_next = _due()
    found = (await connection.execute(of_those, {"now": now, "lately": now - _LATELY})).all()
    placements = await placements_of(connection, [row.id for row in found]) if found else {}
    later = (await connection.execute(of_next, {"now": now})).scalar()
    return [
        DueTimeslot(as_timeslot(row, placements.get(row.id, {})), row.noticed_at is not None) for row in found
    ], later


@cache
def _due() -> tuple[Select[Any], Select[Any]]:
    """Return the queries for due timeslots and for the next lead.

    The union lets each part use its index: most timeslots are far ahead or long over.
    """
    live, begun = timeslots.c.ended_at.is_(None), timeslots.c.eligible_at <= bindparam("now")
    finished = select(workloads.c.timeslot_id).where(
        workloads.c.ended_at >= bindparam("lately"), workloads.c.timeslot_id.is_not(None)
    )
    either = select(timeslots.c.id).where(live, begun).union(finished).subquery()
    of_those = (
        select(timeslots, pools.c.name.label("pool_name"))
        .join(pools, pools.c.id == timeslots.c.pool_id)
        .where(live, timeslots.c.id.in_(select(either.c.id)))
        .order_by(timeslots.c.id)
    )
    return of_those, select(func.min(timeslots.c.eligible_at)).where(live, ~begun)


async def use_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, TimeslotUse]:
    """Return the use of these timeslots; those without workloads are left out."""
    if not ids:
        return {}
    rows = await connection.execute(_use_of(), {"ids": ids})
    return {
        row.timeslot_id: TimeslotUse(row.living, row.ended, bool(row.placed), bool(row.present), row.left_at)
        for row in rows
    }


@cache
def _use_of() -> Select[Any]:
    present = tasks.c.status.in_(list(OCCUPYING))
    of_workload = (
        select(
            tasks.c.workload_id,
            func.max(case((present, 1), else_=0)).label("present"),
            func.max(tasks.c.freed_at).label("left_at"),
        )
        .group_by(tasks.c.workload_id)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(batch_sql.among(workloads.c.timeslot_id))
        .subquery()
    )
    return (
        select(
            workloads.c.timeslot_id,
            func.sum(case((workloads.c.ended_at.is_(None), 1), else_=0)).label("living"),
            func.sum(case((workloads.c.ended_at.is_(None), 0), else_=1)).label("ended"),
            func.max(case((workloads.c.placed_before, 1), else_=0)).label("placed"),
            func.max(of_workload.c.present).label("present"),
            func.max(of_workload.c.left_at).label("left_at"),
        )
        .outerjoin(of_workload, of_workload.c.workload_id == workloads.c.id)
        .where(batch_sql.among(workloads.c.timeslot_id))
        .group_by(workloads.c.timeslot_id)
    )


async def announce_end(connection: AsyncConnection, slots: Sequence[Timeslot], now: datetime, term: int | None) -> None:
    """Notify the users of these timeslots, once, that they end soon."""
    untold = (batch_sql.among(timeslots.c.id, [slot.id for slot in slots]), timeslots.c.noticed_at.is_(None))
    write = update(timeslots).where(*untold).values(noticed_at=now).returning(timeslots.c.id)
    announced = set((await connection.execute(write)).scalars())
    new_events = [
        NewEvent("timeslot", slot.id, slot.version, ENDS_SOON, details={"ends_at": slot.ends_at.isoformat()})
        for slot in slots
        if slot.id in announced
    ]
    await events.append(connection, new_events, now, term)


async def overdue_workloads(connection: AsyncConnection) -> list[OverdueWorkload]:
    """Return the workloads that are alive and not being stopped although their timeslot is over."""
    return [
        OverdueWorkload(
            row.id, TimeslotStatus(row.status), None if row.reason is None else Reason(**row.reason), row.placed
        )
        for row in await connection.execute(_overdue())
    ]


@cache
def _overdue() -> Select[Any]:
    on_a_node = select(tasks.c.id).where(tasks.c.workload_id == workloads.c.id, tasks.c.status.in_(list(OCCUPYING)))
    return (
        select(workloads.c.id, timeslots.c.status, timeslots.c.reason, on_a_node.exists().label("placed"))
        .join(timeslots, timeslots.c.id == workloads.c.timeslot_id)
        .where(
            timeslots.c.status.in_(sorted(OVER)),
            workloads.c.timeslot_id.is_not(None),
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
        )
        .order_by(workloads.c.id)
        .limit(_LIMIT)
    )


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete timeslots that ended before a time and that no workload refers to; return the number deleted.

    A series is deleted with its last timeslot. The history is purged separately, by its own age.
    """
    named = select(workloads.c.id).where(workloads.c.timeslot_id == timeslots.c.id)
    oldest = (
        select(timeslots.c.id)
        .where(timeslots.c.ended_at < before, ~named.exists())
        .order_by(timeslots.c.ended_at)
        .limit(limit)
    )
    gone = list((await connection.execute(oldest)).scalars())
    if gone:
        await connection.execute(delete(timeslots).where(batch_sql.among(timeslots.c.id, gone)))
        left = select(timeslots.c.id).where(timeslots.c.series_id == timeslot_series.c.id)
        await connection.execute(delete(timeslot_series).where(~left.exists()))
    return len(gone)
