"""Rendering of bookings: the list, the details of one, and the decision on a request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mooring.cli.exits import ExitCode, say
from mooring.cli.rendering.formatting import (
    age,
    amounts,
    instant,
    plural,
    reason_text,
    shortened,
)
from mooring.cli.rendering.output import (
    Cell,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.calendar.durations import format_duration

if TYPE_CHECKING:
    from mooring.wire.workloads.timeslots import TimeslotView

_STYLES = {
    "CONFIRMED": "green",
    "ACTIVE": "green",
    "REQUESTED": "yellow",
    "AT_RISK": "red",
    "REFUSED": "red",
    "EXPIRED": "red",
    "CANCELLED": "dim",
    "RELEASED": "dim",
    "ENDED": "dim",
}
_REASON_WIDTH = 60
_COLUMNS = (
    Column("NAME"),
    Column("STATUS"),
    Column("START"),
    Column("END"),
    Column("COUNT", number=True),
    Column("RESOURCES", cut=True),
    Column("POOL"),
    Column("PLACE"),
    Column("KIND", wide=True),
    Column("USER", wide=True),
    Column("PURPOSE", wide=True, cut=True),
    Column("ID", wide=True),
    Column("REASON", cut=True),
)


def show_bookings(found: Sequence[TimeslotView], output: Format | Listing) -> None:
    if output.is_document:
        show_document(found, output)
        return
    show_table(_COLUMNS, [_row(slot) for slot in found], output)


def show_booking(slot: TimeslotView, output: Format) -> None:
    if output.is_document:
        show_document(slot, output)
        return
    show_fields(
        [
            ("name", slot.name),
            ("id", str(slot.id)),
            ("kind", slot.kind),
            ("purpose", slot.purpose or ""),
            ("status", _status(slot)),
            ("start", instant(slot.start)),
            ("end", f"{instant(slot.end)} ({format_duration(int((slot.end - slot.start).total_seconds()))})"),
            ("lead", f"{format_duration(slot.lead_seconds)}, from {instant(slot.eligible_at)} on"),
            ("grace", format_duration(slot.grace_seconds)),
            ("pool", slot.pool),
            ("region", slot.region or ""),
            ("capacity", _capacity(slot)),
            ("nodes", _nodes(slot)),
            ("user", f"{slot.user} (project {slot.project})"),
            ("also for", ", ".join([*slot.users, *(f"project {name}" for name in slot.projects)])),
            ("released", _released(slot)),
            ("series", f"{slot.rule} ({slot.timezone})" if slot.rule else ""),
            ("replaces", "" if slot.replaces is None else str(slot.replaces)),
            ("created", f"{instant(slot.created_at)} ({age(slot.created_at)} ago)"),
            ("over", instant(slot.ended_at)),
            ("reason", reason_text(slot.reason)),
        ]
    )


def show_decision(slot: TimeslotView, start: str = "--start {}", count: str = "--count {}") -> ExitCode:
    """Print the decision: the nodes, or the reason and alternatives, as options of the command that asked."""
    if slot.status == "REFUSED":
        say(f"error: {reason_text(slot.reason) or 'refused'}")
        if hint := _alternatives(slot, start, count):
            say(f"hint: {hint}")
        return ExitCode.FAILURE
    where = f" on {_nodes(slot)}" if slot.places else ""
    show_line(
        f"{slot.name} is ", _status(slot), f": {instant(slot.start)} to {instant(slot.end)}, {_capacity(slot)}{where}"
    )
    return ExitCode.OK


def show_decisions(decided: Sequence[TimeslotView], output: Format | Listing) -> ExitCode:
    """Print the decisions on the bookings of a series."""
    show_bookings(decided, output)
    refused = sum(slot.status == "REFUSED" for slot in decided)
    if refused:
        say(f"error: {plural(refused, 'booking')} of {len(decided)} rejected; the others are kept")
    return ExitCode.FAILURE if refused else ExitCode.OK


def _row(slot: TimeslotView) -> list[Cell]:
    return [
        slot.name,
        _status(slot),
        instant(slot.start),
        instant(slot.end),
        str(slot.count),
        amounts(slot.resources),
        slot.pool,
        _nodes(slot),
        slot.kind,
        slot.user,
        slot.purpose or "",
        str(slot.id),
        shortened(reason_text(slot.reason), _REASON_WIDTH),
    ]


def _status(slot: TimeslotView) -> Styled:
    return Styled(slot.status.lower().replace("_", " "), _STYLES.get(slot.status, ""))


def _capacity(slot: TimeslotView) -> str:
    if slot.kind == "maintenance":
        return "whole nodes"
    return f"{slot.count} x {amounts(slot.resources)}"


def _nodes(slot: TimeslotView) -> str:
    """Return `n1, n2 (3)`: nodes with their number of tasks, if more than one."""
    return ", ".join(taken.node if taken.tasks == 1 else f"{taken.node} ({taken.tasks})" for taken in slot.places)


def _released(slot: TimeslotView) -> str:
    seconds = slot.release_after_seconds
    return "" if seconds is None else f"if unused for {format_duration(seconds)}"


def _alternatives(slot: TimeslotView, start: str, count: str) -> str:
    """Return the alternatives that would have fitted."""
    found = (slot.reason or {}).get("details", {}).get("alternatives") or {}
    options = []
    if found.get("start"):
        options.append(start.format(datetime.fromisoformat(found["start"]).astimezone().isoformat(timespec="seconds")))
    if found.get("count"):
        options.append(count.format(found["count"]))
    return f"try {' or '.join(options)}" if options else ""
