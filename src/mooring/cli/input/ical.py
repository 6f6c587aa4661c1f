"""Bookings from an iCalendar file: one request for each event."""

from __future__ import annotations

import re
from datetime import date, datetime, time, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from icalendar import Event

_MAX_BYTES = 1 << 20
_MAX_EVENTS = 1000


class Imported(NamedTuple):
    fields: dict[str, Any]
    """Fields of a `TimeslotRequest` without its resources."""
    key: str
    """Idempotency key: an event in the same version is booked once, however often its file is imported."""


def events_in(file: Path, zone: tzinfo) -> list[Imported]:
    """Return the events of a calendar. `zone` applies to times without a time zone."""
    from icalendar import Calendar, Event

    if file.stat().st_size > _MAX_BYTES:
        raise InvalidInput(f"{file} has more than {_MAX_BYTES:,} bytes")
    try:
        found = list(Calendar.from_ical(file.read_bytes()).walk("VEVENT"))
    except ValueError as error:
        raise InvalidInput(f"{file} is not an iCalendar file: {error}") from None
    if not found:
        raise InvalidInput(f"{file} has no events")
    if len(found) > _MAX_EVENTS:
        raise InvalidInput(f"{file} has {len(found):,} events; at most {_MAX_EVENTS:,} are imported at once")
    return [_imported(event, zone) for event in found if isinstance(event, Event)]


def _imported(event: Event, zone: tzinfo) -> Imported:
    summary = str(event.get("summary", "")).strip()
    what = f"event {summary[:60]!r}"
    if "recurrence-id" in event:
        raise InvalidInput(f"{what} changes one occurrence of a series; import it as an event of its own")
    if "dtstart" not in event:
        raise InvalidInput(f"{what} has no start")
    if "dtend" not in event and "duration" not in event:
        raise InvalidInput(f"{what} has neither an end nor a duration")
    start, end = _moment(event.start, zone), _moment(event.end, zone)
    fields: dict[str, Any] = {
        "name": _name(summary),
        "purpose": " ".join(summary.split())[:500] or None,
        "start": start,
        "end": end,
    }
    if event.rrules:
        if len(event.rrules) > 1:
            raise InvalidInput(f"{what} has several recurrence rules; only one is supported")
        fields["rule"] = event.rrules[0].to_ical().decode()
        fields["timezone"] = getattr(start.tzinfo, "key", None)
        left_out = (_moment(each, start.tzinfo or zone) for each in event.exdates)
        fields["exceptions"] = sorted({moment.astimezone(start.tzinfo).date() for moment in left_out})
    identity = f"{event.get('uid', '')} {event.get('sequence', 0)} {start.isoformat()} {end.isoformat()}"
    return Imported(
        {name: value for name, value in fields.items() if value}, f"ical-{sha256(identity.encode()).hexdigest()[:40]}"
    )


def _moment(value: date | datetime, zone: tzinfo) -> datetime:
    """Return an instant; a date is its midnight."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time.min)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def _name(summary: str) -> str | None:
    """Return a valid name made from a text, or None if no valid character remains."""
    return re.sub(r"[^a-z0-9]+", "-", summary.lower())[:40].strip("-") or None
