"""Timeslots as an iCalendar file, which other calendars subscribe to."""

from __future__ import annotations

from collections.abc import Iterable

from icalendar import Calendar, Event

from mooring.model.names import shown
from mooring.model.slots import format_amounts
from mooring.model.timeslots import TimeslotStatus
from mooring.store.views.timeslots import TimeslotRow

_TENTATIVE = frozenset({TimeslotStatus.REQUESTED, TimeslotStatus.AT_RISK})


def calendar_of(rows: Iterable[TimeslotRow]) -> bytes:
    calendar = Calendar()
    calendar.add("prodid", "-//Mooring//timeslots//EN")
    calendar.add("version", "2.0")
    for row in rows:
        calendar.add_component(_event(row))
    written: bytes = calendar.to_ical()
    return written


def _event(row: TimeslotRow) -> Event:
    slot = row.slot
    amounts = ", ".join(f"{name} {amount}" for name, amount in format_amounts(slot.request).items()) or "whole nodes"
    event = Event()
    event.add("uid", f"{slot.id}@mooring")
    event.add("sequence", slot.version)
    event.add("dtstamp", row.updated_at)
    event.add("created", row.created_at)
    event.add("dtstart", slot.starts_at)
    event.add("dtend", slot.ends_at)
    event.add("summary", slot.name)
    event.add("status", "TENTATIVE" if slot.status in _TENTATIVE else "CONFIRMED")
    event.add("location", ", ".join(node for node, _ in row.places) or f"pool {slot.pool}")
    lines = [f"{slot.kind} of {row.user}: {slot.count} x {amounts}", f"pool {slot.pool}, {slot.status}"]
    event.add("description", "\n".join([*([shown(slot.purpose)] if slot.purpose else []), *lines]))
    return event
