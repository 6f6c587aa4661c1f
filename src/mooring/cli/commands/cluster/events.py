"""`mooring events`: what happened in the cluster, as far as one may see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import WORK, ServerOption
from mooring.cli.output import Cell, Styled, show_line
from mooring.cli.words import instant, status_style

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.api import EventView

app = typer.Typer()

_PAGE = 1000


@app.command(rich_help_panel=WORK)
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="CURSOR", help="What came after it; else all that is kept, with --follow from now on."),
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of one workload.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with what decisions saw.")] = False,
    server: ServerOption = None,
) -> None:
    """Show events, each with the cursor to go on from. Users see those of their own workloads, admins all."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.events(since, expand=True, workload=workload) if follow else _pages(client, since, workload)
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
        f"{event.cursor}  {instant(event.at)}  {event.noun} {what or event.id}  ",
        Styled(event.kind.lower(), status_style(event.kind)),
        where,
    ]
