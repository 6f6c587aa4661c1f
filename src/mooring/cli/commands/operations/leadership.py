"""`mooring leader`, `servers` and `loops`: the leader, the other servers, and background work."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import SERVER, OutputOption, ServerOption
from mooring.cli.rendering.formatting import (
    NOTHING,
    age,
    duration,
    instant,
    plural,
)
from mooring.cli.rendering.output import (
    TABLE,
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

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.cluster.operations import BackgroundTaskView, LoopView, ServerView, StartErrors

app = App()
leader_app = App(help="Show the leader; make it resign or run a scheduling pass.", invoke_without_command=True)
app.add_typer(leader_app, name="leader", rich_help_panel=SERVER)

_SERVERS = (
    Column("NAME"),
    Column("ROLE"),
    Column("STANDING"),
    Column("VERSION"),
    Column("SEEN", number=True),
    Column("UP", number=True),
    Column("URL"),
    Column("ELECTION", wide=True),
    Column("PROBLEM"),
)
_SERVERS_WELL = tuple(replace(column, wide=column.wide or column.title == "PROBLEM") for column in _SERVERS)
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
    Column("ERROR", cut=True),
)
_BACKGROUND = (
    Column("BACKGROUND TASK"),
    Column("STATUS"),
    Column("RUNNING FOR", number=True),
    Column("FAILURES", number=True),
    Column("LAST FAILURE", number=True),
    Column("SERVER"),
    Column("ERROR", cut=True),
)
_STYLES = {"leader": "green", "standby": "green", "silent": "red", "ok": "green", "failed": "red", "late": "yellow"}
_STYLES |= {"running": "green", "restarting": "yellow", "failing": "red"}
_LATE_AFTER = timedelta(seconds=15)
"""Allowance for a running iteration and for the age of a report, before a loop counts as late."""
_HAND_OVER_SECONDS = 10.0
_POLL_SECONDS = 0.2


@leader_app.callback()
def leader(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Show the leader, since when it leads, and the standby servers."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.leader()
    if output.is_document:
        show_document(found, output)
        return
    name = found.name or "nobody yet"
    if found.vacant:
        leading: Cell = Styled(_vacancy(found.vacant_since), "red")
    else:
        leading = Styled(f"{name} (silent)", "red") if found.silent else Styled(name, "green")
    show_fields(
        [
            ("leader", leading),
            ("reason", found.vacant_reason or ""),
            ("last leader", name if found.vacant and found.name else ""),
            ("term", str(found.term)),
            ("since", f"{instant(found.since)} ({age(found.since)})" if found.since else ""),
            ("chosen by", found.coordination or ""),
            ("url", found.url or ""),
            ("standbys", ", ".join(standby.name for standby in found.standbys) or "none"),
        ]
    )


@leader_app.command()
def resign(server: ServerOption = None) -> None:
    """Make the leader hand over to a standby. The request must go to the leader."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        before = client.leader()
        client.resign()
        show_line(f"{before.name}: resigned from term {before.term}")
        show_line(_next_leader(client, before.term))


@leader_app.command(name="pass")
def run_pass(output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Make the leader try all pending work now. The request must go to the leader."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.run_pass()
    if output.is_document:
        show_document(found, output)
        return
    show_line(
        f"{plural(found.placed, 'workload')} placed, {found.waiting} waiting, {found.impossible} impossible "
        f"({_seconds(found.seconds)})"
    )


@app.command(rich_help_panel=SERVER)
@with_groups
def servers(output: Listing = TABLE, server: ServerOption = None) -> None:
    """Show the servers: the leader, the standbys, and those that stopped reporting."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.servers()
    if output.is_document:
        show_document(found, output)
    else:
        columns = _SERVERS if any(one.problem for one in found.servers) else _SERVERS_WELL
        show_table(columns, [_server_row(one) for one in found.servers], output)
        if found.vacant_reason is not None and output.is_table:
            show_line(Styled(f"Leader: {_vacancy(found.vacant_since)}. {found.vacant_reason}", "red"))


@app.command(rich_help_panel=SERVER)
@with_groups
def loops(output: Listing = TABLE, server: ServerOption = None) -> None:
    """Show the leader's control loops, the background tasks of servers, and failed ones of agents."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.loops()
    if output.is_document:
        show_document(found, output)
    else:
        at = datetime.now(UTC)
        show_table(_LOOPS, [_loop_row(loop, at) for loop in found.loops], output)
        if found.start_errors is not None and output.is_table:
            show_line("")
            show_line(_start_errors(found.start_errors))
        if found.background and output.is_table:
            show_line("")
            show_table(_BACKGROUND, [_background_row(task, at) for task in found.background], output)


def _start_errors(errors: StartErrors) -> str:
    return (
        f"Predicted starts: {plural(errors.workloads, 'workload')} in 7 days,"
        f" error median {duration(errors.median_seconds)}, p90 {duration(errors.p90_seconds)},"
        f" {errors.late} late, {errors.moved} moved before"
    )


def _vacancy(since: datetime | None) -> str:
    return f"none since {instant(since)} ({age(since)})" if since else "nobody yet"


def _next_leader(client: Client, term: int) -> str:
    """Wait for a leader after that term, and return its row."""
    deadline = time.monotonic() + _HAND_OVER_SECONDS
    while (found := client.leader()).term == term or found.vacant:
        if time.monotonic() > deadline:
            return "no server leads yet; `mooring leader` shows the next leader"
        time.sleep(_POLL_SECONDS)
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
        server.election or "",
        server.problem or "",
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


def _background_row(task: BackgroundTaskView, at: datetime) -> list[Cell]:
    return [
        task.name,
        Styled(task.status, _STYLES[task.status]),
        age(task.started_at, until=at),
        str(task.failures),
        age(task.failed_at, until=at),
        task.server,
        task.error or "",
    ]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
