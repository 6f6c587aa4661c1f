"""`mooring events`: the events that the user may see."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import WORK, ServerOption
from mooring.cli.rendering.formatting import NOTHING, instant, status_style
from mooring.cli.rendering.output import (
    TABLE,
    Cell,
    Column,
    Listing,
    Styled,
    show_document,
    show_following,
    show_table,
)

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.cluster.events import EventView

app = App()

_PAGE = 1000
_NOUNS = {"timeslot": "booking"}
"""Nouns of the feed that users know by another name."""
_COLUMNS = (
    Column("CURSOR", drop=0),
    Column("TIME"),
    Column("OBJECT", drop=0),
    Column("EVENT", drop=0),
    Column("NODE", drop=2),
    Column("MESSAGE", cut=True, drop=3),
    Column("ID", wide=True),
    Column("VERSION", wide=True, number=True),
)


@app.command(rich_help_panel=WORK)
@with_groups
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
        bool, typer.Option("--json", help="Print one JSON object per line, as `--follow -o json` does.")
    ] = False,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """Show events, each with its cursor. Users see events of their own workloads, administrators see all."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.events(since, expand=True, workload=workload) if follow else _pages(client, since, workload)
        if limit is not None:
            found = islice(found, limit) if follow or since else iter(deque(found, maxlen=limit))
        if json:
            for event in found:
                print(event.model_dump_json(exclude_none=True), flush=True)
        elif follow:
            show_following(_COLUMNS, ((event, _row(event)) for event in found), output)
        elif output.is_document:
            show_document(list(found), output)
        else:
            show_table(_COLUMNS, [_row(event) for event in found], output)


def _pages(client: Client, since: str | None, workload: str | None) -> Iterator[EventView]:
    while True:
        page = client.event_page(since, limit=_PAGE, expand=True, workload=workload)
        yield from page.events
        if not page.more:
            return
        since = page.next


def _row(event: EventView) -> list[Cell]:
    what = {
        "workload": event.workload,
        "task": f"{event.workload}/{event.task_index}",
        "node": event.node,
        "pool": event.pool,
        "timeslot": event.timeslot,
    }.get(event.noun)
    details = event.details if event.kind == "unschedulable" and event.details else {}
    return [
        event.cursor,
        instant(event.at),
        f"{_NOUNS.get(event.noun, event.noun)} {what or event.id}",
        Styled(event.kind.lower(), status_style(event.kind)),
        (event.node if event.noun == "task" else None) or NOTHING,
        str(details.get("message", NOTHING)),
        str(event.id),
        str(event.version),
    ]
