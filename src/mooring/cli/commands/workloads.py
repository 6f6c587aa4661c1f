"""`mooring scale`, `extend`, `cancel` and `rm`: changing and ending workloads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode, report
from mooring.cli.options import (
    WORK,
    ForceOption,
    OutputOption,
    ServerOption,
    WorkloadArgument,
    WorkloadsArgument,
    YesOption,
)
from mooring.cli.output import Format, show_json, show_line
from mooring.cli.words import plural, status_text
from mooring.model.errors import InvalidInput, MooringError, Unavailable

if TYPE_CHECKING:
    from mooring.wire.api import WorkloadView

app = typer.Typer()


@app.command(rich_help_panel=WORK)
def scale(
    name: WorkloadArgument,
    replicas: Annotated[int, typer.Argument(metavar="REPLICAS", min=1, help="How many to keep running.")],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change how many replicas of a deployment run."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        view = client.scale(name, replicas)
    if output is Format.JSON:
        show_json(view)
    else:
        status = status_text(view.status, simulated=view.simulated)
        show_line(f"{view.name}: {status}, {view.running} running, {plural(view.replicas, 'replica')} wanted")


@app.command(rich_help_panel=WORK)
def extend(
    name: WorkloadArgument,
    longer: Annotated[str | None, typer.Argument(metavar="+TIME", help="How much longer: +30m.")] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help="How long it may take in all: 2h.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Give a session more time, also while it runs."""
    from mooring.cli.connection import connect
    from mooring.cli.words import instant
    from mooring.model.durations import format_duration, parse_duration

    if (longer is None) == (time is None):
        raise InvalidInput("say how much longer, +30m, or how long in all, --time 2h")
    by = None if longer is None else parse_duration(longer.removeprefix("+"))
    with connect(server) as client:
        detail = client.extend(name, time=None if time is None else parse_duration(time), by=by)
    if output is Format.JSON:
        show_json(detail)
        return
    end = "" if detail.deadline_at is None else f", until {instant(detail.deadline_at)}"
    show_line(f"{detail.name}: at most {format_duration(detail.time_limit_seconds or 0)}{end}")


@app.command(rich_help_panel=WORK)
def cancel(names: WorkloadsArgument, force: ForceOption = False, server: ServerOption = None) -> None:
    """End workloads and leave them on the list."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        worst = end_each(names, lambda name: client.cancel(name, force=force))
    raise typer.Exit(worst)


@app.command(rich_help_panel=WORK)
def rm(
    names: WorkloadsArgument, yes: YesOption = False, force: ForceOption = False, server: ServerOption = None
) -> None:
    """Stop workloads and take them off the list."""
    from mooring.cli.connection import connect

    if not yes:
        confirm(names)
    with connect(server) as client:
        worst = end_each(names, lambda name: client.remove(name, force=force))
    raise typer.Exit(worst)


def end_each(names: list[str], end: Callable[[str], WorkloadView]) -> ExitCode:
    """End one after the other; one that cannot be ended does not save the others."""
    worst = ExitCode.OK
    for name in names:
        try:
            view = end(name)
        except Unavailable:
            raise
        except MooringError as error:
            worst = max(worst, report(error))
        else:
            show_line(f"{view.name}: {status_text(view.status, simulated=view.simulated)}")
    return worst


def confirm(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("there is nobody to ask whether to remove them; say so with --yes", code="not-confirmed")
    from mooring.model.names import shown

    what = shown(names[0]) if len(names) == 1 else f"these {len(names)} workloads"
    if not typer.confirm(f"Stop and remove {what}?", err=True):
        raise typer.Exit(ExitCode.FAILURE)
