"""What is due of timeslots by time, how they are used, and the work that outlived them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, bindparam, case, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING
from mooring.model.reasons import Reason
from mooring.model.timeslots import OVER, Timeslot, TimeslotStatus
from mooring.store import events, sets
from mooring.store.events import NewEvent
from mooring.store.tables import pools, tasks, timeslot_series, timeslots, workloads
from mooring.store.timeslots import as_timeslot, places_of

ENDS_SOON = "ends-soon"
"""The kind of a timeslot's event that tells its users to come to an end."""
_LIMIT = 1000
_LATELY = timedelta(days=1)
"""What ended before was seen then, or is when the lead begins."""


class Due(NamedTuple):
    """A timeslot, and whether its users were told that it ends soon."""

    slot: Timeslot
    noticed: bool


class Use(NamedTuple):
    """What became of the work inside a timeslot."""

    living: int
    """Workloads that have not ended."""
    ended: int
    placed: bool
    """Something of it had a node."""
    present: bool
    """Something of it is on a node."""
    left_at: datetime | None
    """When the last of it left its node."""


UNUSED = Use(0, 0, False, False, None)


class Outlived(NamedTuple):
    """A workload whose timeslot is over."""

    workload_id: UUID
    status: TimeslotStatus
    reason: Reason | None
    placed: bool
    """Something of it is on a node."""


async def due(connection: AsyncConnection, now: datetime) -> tuple[list[Due], datetime | None]:
    """The timeslots whose lead has begun or whose work is done, unless they are over, and when the next lead begins."""
    of_those, of_next = _due()
    found = (await connection.execute(of_those, {"now": now, "lately": now - _LATELY})).all()
    places = await places_of(connection, [row.id for row in found]) if found else {}
    later = (await connection.execute(of_next, {"now": now})).scalar()
    return [Due(as_timeslot(row, places.get(row.id, {})), row.noticed_at is not None) for row in found], later


@cache
def _due() -> tuple[Select[Any], Select[Any]]:
    """Each part by its index: most timeslots are far ahead, or long over."""
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


async def use_of(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, Use]:
    """How these timeslots are used; those without any work are not named."""
    if not ids:
        return {}
    rows = await connection.execute(_use_of(), {"ids": ids})
    return {
        row.timeslot_id: Use(row.living, row.ended, bool(row.placed), bool(row.present), row.left_at) for row in rows
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
        .where(sets.among(workloads.c.timeslot_id))
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
        .where(sets.among(workloads.c.timeslot_id))
        .group_by(workloads.c.timeslot_id)
    )


async def tell_of_end(connection: AsyncConnection, slots: Sequence[Timeslot], now: datetime, term: int | None) -> None:
    """Tell the users of these timeslots, once, that they end soon."""
    untold = (sets.among(timeslots.c.id, [slot.id for slot in slots]), timeslots.c.noticed_at.is_(None))
    write = update(timeslots).where(*untold).values(noticed_at=now).returning(timeslots.c.id)
    told = set((await connection.execute(write)).scalars())
    news = [
        NewEvent("timeslot", slot.id, slot.version, ENDS_SOON, details={"ends_at": slot.ends_at.isoformat()})
        for slot in slots
        if slot.id in told
    ]
    await events.append(connection, news, now, term)


async def outlived(connection: AsyncConnection) -> list[Outlived]:
    """The workloads that live on though their timeslot is over, unless they are being stopped."""
    return [
        Outlived(row.id, TimeslotStatus(row.status), None if row.reason is None else Reason(**row.reason), row.placed)
        for row in await connection.execute(_outlived())
    ]


@cache
def _outlived() -> Select[Any]:
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


async def purge(connection: AsyncConnection, before: datetime, most: int) -> int:
    """Forget timeslots that were over before then and that no workload names any more; how many went.

    A series goes with its last one. Their history is forgotten by its own age.
    """
    named = select(workloads.c.id).where(workloads.c.timeslot_id == timeslots.c.id)
    oldest = (
        select(timeslots.c.id)
        .where(timeslots.c.ended_at < before, ~named.exists())
        .order_by(timeslots.c.ended_at)
        .limit(most)
    )
    gone = list((await connection.execute(oldest)).scalars())
    if gone:
        await connection.execute(delete(timeslots).where(sets.among(timeslots.c.id, gone)))
        left = select(timeslots.c.id).where(timeslots.c.series_id == timeslot_series.c.id)
        await connection.execute(delete(timeslot_series).where(~left.exists()))
    return len(gone)
