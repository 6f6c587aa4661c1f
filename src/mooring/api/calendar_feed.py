"""Timeslots as an iCalendar file (RFC 5545), which other calendars subscribe to.

Written line by line: the library that reads calendars takes most of a millisecond to write an event, which is seconds
for a feed of thousands that is polled. The tests read the result with that library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from mooring.model.calendar.timeslots import TimeslotStatus
from mooring.model.names import shown
from mooring.model.resources.slots import format_amounts
from mooring.store.views.timeslots import TimeslotRow

_TENTATIVE = frozenset({TimeslotStatus.REQUESTED, TimeslotStatus.AT_RISK})
_SPECIAL = re.compile(r"[\\;,\n]")
_MAX_BYTES = 75
"""Of a line; longer ones are folded."""


def calendar_of(rows: Sequence[TimeslotRow], total: int) -> bytes:
    """Return the calendar of these timeslots of `total`; one that lacks some says so in its description (RFC 7986).

    A change that is not decided is left out: the booking that it would replace still holds.
    """
    lines = ["BEGIN:VCALENDAR", "PRODID:-//Mooring//timeslots//EN", "VERSION:2.0"]
    if len(rows) < total:
        missing = f"Incomplete: the first {len(rows)} of {total} bookings, by start. Select with from, until or pool."
        lines.append(_text("DESCRIPTION", missing))
    for row in rows:
        if row.slot.replaces is None or row.slot.status is not TimeslotStatus.REQUESTED:
            lines += _event(row)
    lines += ["END:VCALENDAR", ""]
    return "\r\n".join(lines).encode()


def _event(row: TimeslotRow) -> Iterator[str]:
    slot = row.slot
    amounts = ", ".join(f"{name} {amount}" for name, amount in format_amounts(slot.request).items()) or "whole nodes"
    description = [f"{slot.kind} of {row.user}: {slot.count} x {amounts}", f"pool {slot.pool}, {slot.status}"]
    if slot.purpose:
        description.insert(0, shown(slot.purpose))
    location = ", ".join(node for node, _ in row.placements) or f"pool {slot.pool}"
    yield "BEGIN:VEVENT"
    yield f"UID:{slot.uid}@mooring"
    # Grows with every change, those that made another timeslot of it included.
    yield f"SEQUENCE:{int(row.updated_at.timestamp())}"
    yield f"DTSTAMP:{_instant(row.updated_at)}"
    yield f"CREATED:{_instant(row.created_at)}"
    yield f"DTSTART:{_instant(slot.starts_at)}"
    yield f"DTEND:{_instant(slot.ends_at)}"
    yield f"STATUS:{'TENTATIVE' if slot.status in _TENTATIVE else 'CONFIRMED'}"
    yield _text("SUMMARY", slot.name)
    yield _text("LOCATION", location)
    yield _text("DESCRIPTION", "\n".join(description))
    yield "END:VEVENT"


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def _text(name: str, value: str) -> str:
    escaped = _SPECIAL.sub(lambda found: "\\n" if found[0] == "\n" else f"\\{found[0]}", value)
    return _folded(f"{name}:{escaped}")


def _folded(line: str) -> str:
    """Break a line that is too long, between characters; what goes on begins with a space."""
    if len(line) * 4 <= _MAX_BYTES or len(line.encode()) <= _MAX_BYTES:
        return line
    parts, part, size = [], "", 0
    for character in line:
        width = len(character.encode())
        if size + width > _MAX_BYTES:
            parts.append(part)
            part, size = "", 1
        part += character
        size += width
    return "\r\n ".join([*parts, part])
