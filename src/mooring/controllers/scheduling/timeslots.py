"""Timeslots by time: they come into force with their lead, are missed, given back or over; then their work ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.model.durations import format_duration
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.reasons import Reason
from mooring.model.timeslots import TIMESLOT_OVER, Timeslot, TimeslotKind, TimeslotStatus
from mooring.store import agenda, leadership, limits, pools, timeslots, workloads
from mooring.store.agenda import UNUSED, Due, Outlived, Use
from mooring.store.changes import Applied
from mooring.store.derivation import Ends
from mooring.store.engine import Connection, Database
from mooring.store.narration import narrate
from mooring.store.timeslots import Move

_log = structlog.get_logger(__name__)
_JUST_AFTER = timedelta(milliseconds=1)
_ACTOR = "timeslots"
S = TimeslotStatus
T = TypeVar("T")


@dataclass(slots=True)
class Agenda:
    """What is due now, and when to look again."""

    moves: list[Move] = field(default_factory=list)
    notices: list[Timeslot] = field(default_factory=list)
    next_at: datetime | None = None


class TimeslotsLoop:
    """It wakes exactly when the next thing is due."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            found, next_lead = await agenda.due(connection, at)
            use = await agenda.use_of(connection, [each.slot.id for each in found])
            known = await pools.all_pools(connection) if found else ()
            outlived = await agenda.outlived(connection)
        due = look(found, use, {pool.name: pool.policy.bookings.notice_seconds for pool in known}, at)
        self.alarm.set(due.next_at, next_lead)
        if due.moves or due.notices:
            await self._write(partial(self._carry_out, due, at))
        for work in outlived:
            narrate(await self._write(partial(self._end, work, at)))
        return bool(due.moves or outlived)

    async def _carry_out(self, due: Agenda, at: datetime, connection: Connection) -> None:
        moved = await timeslots.move(connection, due.moves, at, actor=_ACTOR, term=self._office.term)
        await agenda.tell_of_end(connection, due.notices, at, self._office.term)
        for slot in moved:
            _log.info(f"Timeslot {slot.id} is {slot.status}")

    async def _end(self, work: Outlived, at: datetime, connection: Connection) -> Applied:
        """End what lives on: what is on nodes is given time to stop."""
        if work.placed:
            reason = _over(work)
            return await workloads.stop(connection, work.workload_id, actor=_ACTOR, now=at, remove=False, reason=reason)
        how = WorkloadStatus.EXPIRED if work.status is S.EXPIRED else WorkloadStatus.CANCELLED
        ends: Ends = {work.workload_id: (how, work.reason or _over(work))}
        return await limits.end_waiting(connection, ends, actor=_ACTOR, now=at, term=self._office.term)

    async def _write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async def checked(connection: Connection) -> T:
            await leadership.check_term(connection, self._office.term)
            return await work(connection)

        return await self._database.write(checked)


def look(found: Iterable[Due], use: Mapping[UUID, Use], notice: Mapping[str, int], at: datetime) -> Agenda:
    """What is due of timeslots now. `notice`: by pool how many seconds before their end their users are told."""
    due = Agenda()
    times: list[datetime] = []
    for slot, noticed in found:
        own = use.get(slot.id, UNUSED)
        move = _move(slot, own, at)
        if move is not None:
            due.moves.append(move)
            continue
        told_at = slot.ends_at - timedelta(seconds=notice.get(slot.pool, 0))
        if slot.status is S.ACTIVE and not noticed and slot.kind is not TimeslotKind.MAINTENANCE:
            if told_at <= at:
                due.notices.append(slot)
            else:
                times.append(told_at)
        times += _times(slot, own)
    due.next_at = min((time for time in times if time > at), default=None)
    return due


def _move(slot: Timeslot, use: Use, at: datetime) -> Move | None:
    """What becomes of a timeslot at this time; None: nothing new."""
    if slot.status is S.REQUESTED:
        return None
    if slot.kind is TimeslotKind.LAB and use.ended and not use.living:
        done = Reason("work-ended", "its work has ended", _ACTOR, "never")
        return Move(slot, S.RELEASED if slot.status is S.ACTIVE else S.CANCELLED, done)
    if slot.status is S.CONFIRMED:
        return Move(slot, S.ACTIVE) if slot.eligible_at <= at else None
    if slot.kind is TimeslotKind.LAB and not use.placed and at > slot.missed_at:
        grace = format_duration(slot.grace_seconds)
        message = f"nothing of it could start within {grace} after its start"
        return Move(slot, S.EXPIRED, Reason("timeslot-missed", message, _ACTOR, "never"))
    if slot.ends_at <= at:
        return Move(slot, S.ENDED)
    released_at = _released_at(slot, use)
    if slot.status is S.ACTIVE and released_at is not None and released_at <= at:
        assert slot.release_after_seconds is not None
        message = f"nobody used it for {format_duration(slot.release_after_seconds)}"
        return Move(slot, S.RELEASED, Reason("unused", message, _ACTOR, "never"))
    return None


def _times(slot: Timeslot, use: Use) -> list[datetime]:
    """When a timeslot may have to be moved."""
    times = [slot.missed_at + _JUST_AFTER, slot.ends_at]
    released_at = _released_at(slot, use)
    return times if released_at is None else [*times, released_at]


def _released_at(slot: Timeslot, use: Use) -> datetime | None:
    if slot.release_after_seconds is None or slot.kind is not TimeslotKind.BOOKING or use.present:
        return None
    since = slot.starts_at if use.left_at is None else max(slot.starts_at, use.left_at)
    return since + timedelta(seconds=slot.release_after_seconds)


def _over(work: Outlived) -> Reason:
    said = {S.CANCELLED: "was cancelled", S.RELEASED: "was given back"}.get(work.status, "is over")
    return Reason(TIMESLOT_OVER, f"Its timeslot {said}", _ACTOR, "never")
