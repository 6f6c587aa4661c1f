"""Timeslots by time: they become active with their lead, expire, are released or end; then their work ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import structlog

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.calendar.durations import format_duration
from mooring.model.calendar.timeslots import (
    TIMESLOT_OVER,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.reasons import Reason
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.commit.workload_status import Ends
from mooring.store.core.engine import Connection
from mooring.store.nodes import pools
from mooring.store.reservations import due_timeslots, timeslots
from mooring.store.reservations.due_timeslots import (
    UNUSED,
    DueTimeslot,
    OverdueWorkload,
    TimeslotUse,
)
from mooring.store.reservations.timeslots import TimeslotUpdate
from mooring.store.workloads import expiry, stopping

_log = structlog.get_logger(__name__)
_JUST_AFTER = timedelta(milliseconds=1)
_ACTOR = "timeslots"
S = TimeslotStatus


@dataclass(slots=True)
class DueActions:
    """The updates and notices that are due, and the next time at which some may be."""

    updates: list[TimeslotUpdate] = field(default_factory=list)
    notices: list[Timeslot] = field(default_factory=list)
    next_at: datetime | None = None


class TimeslotsLoop:
    """The loop; its alarm is set to the next due time."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            found, next_lead = await due_timeslots.due(connection, at)
            use = await due_timeslots.use_of(connection, [each.slot.id for each in found])
            known = await pools.all_pools(connection) if found else ()
            overdue = await due_timeslots.overdue_workloads(connection)
        due = due_actions(found, use, {pool.name: pool.policy.bookings.notice_seconds for pool in known}, at)
        self.alarm.set(due.next_at, next_lead)
        if due.updates or due.notices:
            await self._database.write(partial(self._apply_due, due, at))
        for work in overdue:
            log_applied(await self._database.write(partial(self._end, work, at)))
        return bool(due.updates or overdue)

    async def _apply_due(self, due: DueActions, at: datetime, connection: Connection, term: int) -> None:
        updated = await timeslots.apply_updates(connection, due.updates, at, actor=_ACTOR, term=term)
        await due_timeslots.announce_end(connection, due.notices, at, term)
        for slot in updated:
            _log.info(f"Booking {slot.id} is {slot.status}")

    async def _end(self, work: OverdueWorkload, at: datetime, connection: Connection, term: int) -> Applied:
        """End a workload that outlived its timeslot. Placed tasks get their grace period to stop."""
        if work.placed:
            reason = _over(work)
            return await stopping.stop(connection, work.workload_id, actor=_ACTOR, now=at, remove=False, reason=reason)
        how = WorkloadStatus.EXPIRED if work.status is S.EXPIRED else WorkloadStatus.CANCELLED
        ends: Ends = {work.workload_id: (how, work.reason or _over(work))}
        return await expiry.end_waiting(connection, ends, actor=_ACTOR, now=at, term=term)


def due_actions(
    found: Iterable[DueTimeslot], use: Mapping[UUID, TimeslotUse], notice: Mapping[str, int], at: datetime
) -> DueActions:
    """Return the due actions. `notice`: by pool, the seconds before the end at which users are notified."""
    due = DueActions()
    times: list[datetime] = []
    for slot, noticed in found:
        own = use.get(slot.id, UNUSED)
        update = _update_for(slot, own, at)
        if update is not None:
            due.updates.append(update)
            continue
        notice_at = slot.ends_at - timedelta(seconds=notice.get(slot.pool, 0))
        if slot.status is S.ACTIVE and not noticed and slot.kind is not TimeslotKind.MAINTENANCE:
            if notice_at <= at:
                due.notices.append(slot)
            else:
                times.append(notice_at)
        times += _times(slot, own)
    due.next_at = min((time for time in times if time > at), default=None)
    return due


def _update_for(slot: Timeslot, use: TimeslotUse, at: datetime) -> TimeslotUpdate | None:
    """Return the status change that is due for a timeslot, or None."""
    if slot.status is S.REQUESTED:
        return None
    if slot.kind is TimeslotKind.LAB and use.ended and not use.living:
        done = Reason("work-ended", "its work has ended", _ACTOR, "never")
        return TimeslotUpdate(slot, S.RELEASED if slot.status is S.ACTIVE else S.CANCELLED, done)
    if slot.status is S.CONFIRMED:
        return TimeslotUpdate(slot, S.ACTIVE) if slot.eligible_at <= at else None
    if slot.kind is TimeslotKind.LAB and not use.placed and at > slot.missed_at:
        grace = format_duration(slot.grace_seconds)
        message = f"none of its work could start within {grace} after its start"
        return TimeslotUpdate(slot, S.EXPIRED, Reason("timeslot-missed", message, _ACTOR, "never"))
    if slot.ends_at <= at:
        return TimeslotUpdate(slot, S.ENDED)
    released_at = _released_at(slot, use)
    if slot.status is S.ACTIVE and released_at is not None and released_at <= at:
        assert slot.release_after_seconds is not None
        message = f"nobody used it for {format_duration(slot.release_after_seconds)}"
        return TimeslotUpdate(slot, S.RELEASED, Reason("unused", message, _ACTOR, "never"))
    return None


def _times(slot: Timeslot, use: TimeslotUse) -> list[datetime]:
    """Return the times at which a timeslot may change its status."""
    times = [slot.missed_at + _JUST_AFTER, slot.ends_at]
    released_at = _released_at(slot, use)
    return times if released_at is None else [*times, released_at]


def _released_at(slot: Timeslot, use: TimeslotUse) -> datetime | None:
    if slot.release_after_seconds is None or slot.kind is not TimeslotKind.BOOKING or use.present:
        return None
    since = slot.starts_at if use.left_at is None else max(slot.starts_at, use.left_at)
    return since + timedelta(seconds=slot.release_after_seconds)


def _over(work: OverdueWorkload) -> Reason:
    said = {S.CANCELLED: "was cancelled", S.RELEASED: "was given back"}.get(work.status, "is over")
    return Reason(TIMESLOT_OVER, f"Its booking {said}", _ACTOR, "never")
