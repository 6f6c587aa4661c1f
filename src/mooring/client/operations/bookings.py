"""Operations on bookings, labs and maintenance."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

from mooring.client.operations.core import LONG_POLL_SECONDS
from mooring.client.operations.operation import Operation, given, segment
from mooring.wire.workloads import timeslots as wire


def book(request: wire.TimeslotRequest, *, key: str | None = None) -> Operation[wire.TimeslotsAccepted]:
    """Request a booking; it is confirmed or declined soon after. Every call has its own idempotency key."""
    return Operation("POST", "/api/timeslots", wire.TimeslotsAccepted, body=request, key=key or uuid4().hex)


def timeslots(
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    status: str | None = None,
    kind: str | None = None,
    pool: str | None = None,
    series: UUID | None = None,
    all: bool = False,
    everyone: bool = False,
    limit: int | None = None,
    offset: int | None = None,
) -> Operation[wire.TimeslotList]:
    """By start: the user's own, usable ones, and maintenance; with `everyone`, those of all users."""
    query = given(
        **{"from": _written(since)},
        until=_written(until),
        status=status,
        kind=kind,
        pool=pool,
        series=series,
        all=all or None,
        everyone=everyone or None,
        limit=limit,
        offset=offset,
    )
    return Operation("GET", "/api/timeslots", wire.TimeslotList, query=query)


def timeslot(ref: str) -> Operation[wire.TimeslotView]:
    """One by id or name; of several with the same name the one that is in force, or comes next."""
    return Operation("GET", f"/api/timeslots/{segment(ref)}", wire.TimeslotView)


def wait_for_timeslot(
    ref: str, *, version: int | None = None, timeout_seconds: float = LONG_POLL_SECONDS
) -> Operation[wire.TimeslotView]:
    """The booking as soon as it is decided, or differs from `version`, or when the time is over: look at it."""
    seconds = max(timeout_seconds, 0.0)
    query = given(version=version, timeout=seconds)
    return Operation(
        "GET", f"/api/timeslots/{segment(ref)}/wait", wire.TimeslotView, query=query, holds_seconds=seconds
    )


def change_timeslot(ref: str, change: wire.TimeslotChange) -> Operation[wire.TimeslotView]:
    """Return the booking as it is now, or the requested replacement that is not decided yet."""
    return Operation("PATCH", f"/api/timeslots/{segment(ref)}", wire.TimeslotView, body=change)


def cancel_timeslot(ref: str, *, series: bool = False) -> Operation[wire.TimeslotsCancelled]:
    """With `series` all of its series that are not over."""
    query = given(series=series or None)
    return Operation("DELETE", f"/api/timeslots/{segment(ref)}", wire.TimeslotsCancelled, query=query)


def calendar(
    *, since: datetime | None = None, until: datetime | None = None, pool: str | None = None
) -> Operation[str]:
    """One's bookings as an iCalendar file."""
    query = given(**{"from": _written(since)}, until=_written(until), pool=pool)
    return Operation("GET", "/api/timeslots.ics", str, query=query)


def create_maintenance(request: wire.MaintenanceRequest) -> Operation[list[wire.TimeslotView]]:
    """Take whole nodes for a window: one booking per pool."""
    return Operation("POST", "/api/maintenance", list[wire.TimeslotView], body=request)


def create_lab(request: wire.LabRequest, *, key: str | None = None) -> Operation[wire.LabAccepted]:
    """A workload with a booking of its own."""
    return Operation("POST", "/api/labs", wire.LabAccepted, body=request, key=key or uuid4().hex)


def labs(
    *, all: bool = False, everyone: bool = False, limit: int | None = None, offset: int | None = None
) -> Operation[wire.LabList]:
    query = given(all=all or None, everyone=everyone or None, limit=limit, offset=offset)
    return Operation("GET", "/api/labs", wire.LabList, query=query)


def lab(ref: str) -> Operation[wire.LabView]:
    """A lab by its name or the id of its booking, with the ports of its tasks."""
    return Operation("GET", f"/api/labs/{segment(ref)}", wire.LabView)


def cancel_lab(ref: str) -> Operation[wire.TimeslotsCancelled]:
    return Operation("DELETE", f"/api/labs/{segment(ref)}", wire.TimeslotsCancelled)


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
