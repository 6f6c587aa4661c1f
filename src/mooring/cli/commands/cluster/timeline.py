"""`mooring timeline`: the hours ahead as a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.output import Format, Styled, show_json, show_line
from mooring.cli.words import amounts, plural
from mooring.model.errors import InvalidInput
from mooring.model.slots import format_amounts

if TYPE_CHECKING:
    from mooring.wire.timeline import OutlookView, SlotOutlook, TimelineView

app = typer.Typer()

_HEIGHTS = " ▁▂▃▄▅▆▇█"
_PLAIN_HEIGHTS = " .:-=+*#@"
"""Where the terminal cannot show the others."""
_LABEL = 9
_WIDTH = 80
_LINES = (("running", "green"), ("booked", "magenta"), ("planned", "yellow"), ("free", ""))


@app.command(rich_help_panel=CLUSTER)
def timeline(
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="One pool alone.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 31, help="How far ahead.")] = 24,
    slot: Annotated[str, typer.Option(metavar="SLOT", help="What is looked at: cpu, memory, gpu, …")] = "cpu",
    nodes: Annotated[bool, typer.Option("--nodes", help="What is free of each node.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Draw what runs, is booked, planned and free in the time ahead; a full column is all that there is."""
    from mooring.cli.connection import connect

    steps = _WIDTH - _LABEL - 1
    with connect(server) as client:
        found = client.timeline(pool, hours=hours, steps=steps, nodes=nodes)
    if output is Format.JSON:
        show_json(found)
        return
    known = sorted({one.slot for each in found.outlooks for one in each.slots})
    if known and slot not in known:
        raise InvalidInput(f"no node has {slot[:40]!r}; there are: {', '.join(known)}", code="unknown-slot")
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


def _show_pool(pool: OutlookView, slot: SlotOutlook, scale: str) -> None:
    capacity = amounts(format_amounts({slot.slot: slot.capacity}))
    show_line(Styled(f"{pool.pool}: {capacity} on {plural(pool.nodes, 'node')}", "bold"))
    for name, style in _LINES:
        levels: list[int] = getattr(slot, name)
        if any(levels) or name in ("running", "free"):
            show_line(f"{name:<{_LABEL}}", Styled(_bars(levels, slot.capacity), style))
    show_line(scale)
    show_line("")


def _bars(levels: Sequence[int], capacity: int) -> str:
    """A column per step; what is not nothing is seen."""
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
    """The times under a picture, as many as there is room for."""
    marks, line = 6, ""
    for mark in range(marks):
        at = (found.starts_at + timedelta(hours=hours * mark / marks)).astimezone()
        line = line.ljust(found.steps * mark // marks) + at.strftime("%H:%M" if hours <= 24 else "%d. %Hh")
    return line
