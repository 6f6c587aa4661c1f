"""`mooring events`: the events that the user may see."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.options import WORK, ServerOption
from mooring.cli.rendering.formatting import instant, status_style
from mooring.cli.rendering.output import Cell, Styled, show_line

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.cluster.events import EventView

app = App()

_PAGE = 1000
_NOUNS = {"timeslot": "booking"}
"""Nouns of the feed that users know by another name."""


@app.command(rich_help_panel=WORK)
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="CURSOR", help="Cursor to continue after (default: all stored events, or new events with --follow)."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=1, help="Maximum number of events: the newest, or the first with --since or --follow."
        ),
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only events of this workload.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with decision details.")
    ] = False,
    server: ServerOption = None,
) -> None:
    """Show events, each with its cursor. Users see events of their own workloads, administrators see all."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.events(since, expand=True, workload=workload) if follow else _pages(client, since, workload)
        if limit is not None:
            found = islice(found, limit) if follow or since else iter(deque(found, maxlen=limit))
        for event in found:
            if json:
                print(event.model_dump_json(exclude_none=True), flush=True)
            else:
                show_line(*_line(event))


def _pages(client: Client, since: str | None, workload: str | None) -> Iterator[EventView]:
    while True:
        page = client.event_page(since, limit=_PAGE, expand=True, workload=workload)
        yield from page.events
        if not page.more:
            return
        since = page.next


def _line(event: EventView) -> list[Cell]:
    what = {
        "workload": event.workload,
        "task": f"{event.workload}/{event.task_index}",
        "node": event.node,
        "pool": event.pool,
        "timeslot": event.timeslot,
    }.get(event.noun)
    where = f" on {event.node}" if event.noun == "task" and event.node else ""
    return [
        f"{event.cursor}  {instant(event.at)}  {_NOUNS.get(event.noun, event.noun)} {what or event.id}  ",
        Styled(event.kind.lower(), status_style(event.kind)),
        where,
        f": {event.details['message']}" if event.kind == "unschedulable" and event.details else "",
    ]
