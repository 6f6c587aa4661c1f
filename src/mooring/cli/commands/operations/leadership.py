"""`mooring leader`, `servers` and `loops`: who leads, who else is there, and what the leader does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from mooring.cli.options import SERVER, OutputOption, ServerOption
from mooring.cli.output import Cell, Column, Format, Styled, show_fields, show_json, show_line, show_table
from mooring.cli.words import NOTHING, age, duration, instant, plural

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.operations import LoopView, ServerView

app = typer.Typer()
leader_app = typer.Typer(help="Show who leads; let it resign, or try everything at once.", invoke_without_command=True)
app.add_typer(leader_app, name="leader", rich_help_panel=SERVER)

_SERVERS = (
    Column("NAME"),
    Column("ROLE"),
    Column("STANDING"),
    Column("VERSION"),
    Column("SEEN", number=True),
    Column("UP", number=True),
    Column("URL"),
)
_LOOPS = (
    Column("LOOP"),
    Column("OUTCOME"),
    Column("LAST RUN", number=True),
    Column("TOOK", number=True),
    Column("NEXT IN", number=True),
    Column("RUNS", number=True),
    Column("FAILED", number=True),
    Column("BY TIMER", number=True),
    Column("SERVER", wide=True),
    Column("TERM", wide=True, number=True),
    Column("ERROR"),
)
_STYLES = {"leader": "green", "standby": "green", "silent": "red", "ok": "green", "failed": "red", "late": "yellow"}
_LATE_AFTER = timedelta(seconds=15)
"""A turn may take a moment, and reports are some seconds old."""
_HAND_OVER_SECONDS = 10.0
_LOOK_SECONDS = 0.2


@leader_app.callback()
def leader(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show who leads, since when, and who would take its place."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.leader()
    if output is Format.JSON:
        show_json(found)
        return
    name = found.name or "nobody yet"
    show_fields(
        [
            ("leader", Styled(f"{name} (silent)", "red") if found.silent else Styled(name, "green")),
            ("term", str(found.term)),
            ("since", f"{instant(found.since)} ({age(found.since)})" if found.since else ""),
            ("chosen by", found.coordination or ""),
            ("url", found.url or ""),
            ("standbys", ", ".join(standby.name for standby in found.standbys) or "none"),
        ]
    )


@leader_app.command()
def resign(server: ServerOption = None) -> None:
    """Let the leader hand over to a standby. Ask the leader itself."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        before = client.leader()
        client.resign()
        show_line(f"{before.name}: resigned from term {before.term}")
        show_line(_successor(client, before.term))


@leader_app.command(name="pass")
def run_pass(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Let the leader try everything that waits at once. Ask the leader itself."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.run_pass()
    if output is Format.JSON:
        show_json(found)
        return
    show_line(
        f"{plural(found.placed, 'workload')} placed, {found.waiting} waiting, {found.impossible} impossible "
        f"({_seconds(found.seconds)})"
    )


@app.command(rich_help_panel=SERVER)
def servers(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show the servers: who leads, who stands by, and who was not seen lately."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.servers()
    if output is Format.JSON:
        show_json(found)
    else:
        show_table(_SERVERS, [_server_row(one) for one in found.servers], output)


@app.command(rich_help_panel=SERVER)
def loops(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show what each loop of the leader did last, and what it could not do."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.loops()
    if output is Format.JSON:
        show_json(found)
    else:
        at = datetime.now(UTC)
        show_table(_LOOPS, [_loop_row(loop, at) for loop in found.loops], output)


def _successor(client: Client, term: int) -> str:
    """Who leads after that term, as soon as somebody does."""
    deadline = time.monotonic() + _HAND_OVER_SECONDS
    while (found := client.leader()).term == term:
        if time.monotonic() > deadline:
            return "nobody leads yet; `mooring leader` shows who comes"
        time.sleep(_LOOK_SECONDS)
    return f"{found.name}: leads in term {found.term}"


def _server_row(server: ServerView) -> list[Cell]:
    return [
        server.name,
        server.role,
        Styled(server.standing, _STYLES.get(server.standing, "")),
        server.version,
        age(server.last_seen_at),
        age(server.started_at),
        server.url,
    ]


def _loop_row(loop: LoopView, at: datetime) -> list[Cell]:
    late = loop.next_run_at is not None and at - loop.next_run_at > _LATE_AFTER
    outcome = "late" if late else loop.outcome or NOTHING
    return [
        loop.name,
        Styled(outcome, _STYLES.get(outcome, "")),
        age(loop.last_run_at, until=at),
        NOTHING if loop.duration_seconds is None else _seconds(loop.duration_seconds),
        NOTHING if loop.next_run_at is None else duration((loop.next_run_at - at).total_seconds()),
        str(loop.runs),
        str(loop.failures),
        str(loop.found_by_timer),
        loop.server,
        str(loop.term),
        loop.error or "",
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
