"""`mooring timeline`: a chart of the hours ahead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, ServerOption
from mooring.cli.rendering.formatting import NOTHING, amounts, instant, plural
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    Styled,
    show_document,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import format_amounts

if TYPE_CHECKING:
    from mooring.wire.cluster.timeline import ForecastView, SlotForecast, TimelineView

app = App()

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_PLAIN_HEIGHTS = " .:-=+*#@"
"""For terminals without block characters."""
_LABEL = 9
_WIDTH = 80
_COLUMNS = (
    Column("POOL", drop=0),
    Column("NODE"),
    Column("TIME", drop=0),
    *(Column(title, number=True) for title in ("CAPACITY", "RUNNING", "BOOKED", "PLANNED", "FREE")),
)
_LINES = (("running", "green"), ("booked", "magenta"), ("planned", "yellow"), ("free", ""))


@app.command(rich_help_panel=CLUSTER)
@with_groups
def timeline(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Only this pool.")] = None,
    hours: Annotated[int, typer.Option(metavar="HOURS", min=1, max=24 * 31, help="Period to show.")] = 24,
    slot: Annotated[str, typer.Option(metavar="SLOT", help="Slot to show: cpu, memory, gpu, …")] = "cpu",
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the free capacity of each node.")] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Draw running, booked, planned and free capacity over time. A full column is the total capacity.

    CSV and --columns list the amounts of each step instead.
    """
    from mooring.cli.connection import connect

    steps = _WIDTH - _LABEL - 1
    with connect(server) as client:
        found = client.timeline(pool, hours=hours, steps=steps, nodes=nodes)
    if output.is_document:
        show_document(found, output)
        return
    known = sorted({one.slot for each in found.outlooks for one in each.slots})
    if known and slot not in known:
        raise InvalidInput(
            f"no node has the slot {slot[:40]!r}; available slots: {', '.join(known)}", code="unknown-slot"
        )
    if not output.is_table:
        show_table(_COLUMNS, _rows(found, slot), output)
        return
    label = max((len(each.node or "") for each in found.outlooks), default=0) if nodes else 0
    scale = " " * max(_LABEL, label + 1) + _scale(found, hours)
    for each in found.outlooks:
        levels = next((one for one in each.slots if one.slot == slot), None)
        if levels is None:
            continue
        if nodes:
            show_line(f"{each.node or '':<{max(_LABEL, label + 1)}}{_bars(levels.free, levels.capacity)}")
        else:
            _show_pool(each, levels, scale)
    if nodes:
        show_line(scale)


def _rows(found: TimelineView, slot: str) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for each in found.outlooks:
        for levels in (one for one in each.slots if one.slot == slot):
            for step in range(found.steps):
                at = found.starts_at + timedelta(seconds=found.step_seconds * step)
                values = (levels.capacity, *(getattr(levels, name)[step] for name, _ in _LINES))
                rows.append(
                    [
                        each.pool,
                        each.node or NOTHING,
                        instant(at),
                        *(format_amounts({slot: value})[slot] for value in values),
                    ]
                )
    return rows


def _show_pool(pool: ForecastView, slot: SlotForecast, scale: str) -> None:
    capacity = amounts(format_amounts({slot.slot: slot.capacity}))
    show_line(Styled(f"{pool.pool}: {capacity} on {plural(pool.nodes, 'node')}", "bold"))
    for name, style in _LINES:
        levels: list[int] = getattr(slot, name)
        if any(levels) or name in ("running", "free"):
            show_line(f"{name:<{_LABEL}}", Styled(_bars(levels, slot.capacity), style))
    show_line(scale)
    show_line("")


def _bars(levels: Sequence[int], capacity: int) -> str:
    """Return a column per step; any amount above zero is visible."""
    heights = _HEIGHTS if _can_show(_HEIGHTS) else _PLAIN_HEIGHTS
    most = len(heights) - 1
    return "".join(
        heights[0 if level <= 0 else max(1, min(most, level * most // max(capacity, 1)))] for level in levels
    )


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _scale(found: TimelineView, hours: int) -> str:
    """Return the time labels under a chart, as many as fit."""
    marks, line = 6, ""
    for mark in range(marks):
        at = (found.starts_at + timedelta(hours=hours * mark / marks)).astimezone()
        line = line.ljust(found.steps * mark // marks) + at.strftime("%H:%M" if hours <= 24 else "%d. %Hh")
    return line
