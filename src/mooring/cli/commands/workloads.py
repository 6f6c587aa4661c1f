"""`mooring scale`, `mooring cancel` and `mooring rm`: changing and ending workloads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode, report
from mooring.cli.options import (
    WORK,
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
    from mooring.client import Client
    from mooring.wire.api import WorkloadView

app = typer.Typer()

ForceOption = Annotated[
    bool, typer.Option("--force", help="Do not wait for nodes that do not answer; they stay charged until they do.")
]


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
def cancel(names: WorkloadsArgument, force: ForceOption = False, server: ServerOption = None) -> None:
    """End workloads and leave them on the list."""
    _end(names, server, lambda client, name: client.cancel(name, force=force))


@app.command(rich_help_panel=WORK)
def rm(
    names: WorkloadsArgument, yes: YesOption = False, force: ForceOption = False, server: ServerOption = None
) -> None:
    """Stop workloads and take them off the list."""
    if not yes:
        _confirm(names)
    _end(names, server, lambda client, name: client.remove(name, force=force))


def _end(names: list[str], server: str | None, end: Callable[[Client, str], WorkloadView]) -> None:
    """End each of them; what cannot be is said, and the others are ended all the same."""
    from mooring.cli.connection import connect

    worst = ExitCode.OK
    with connect(server) as client:
        for name in names:
            try:
                view = end(client, name)
            except Unavailable:
                raise
            except MooringError as error:
                worst = max(worst, report(error))
            else:
                show_line(f"{view.name}: {status_text(view.status, simulated=view.simulated)}")
    raise typer.Exit(worst)


def _confirm(names: list[str]) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("there is nobody to ask whether to remove them; say so with --yes", code="not-confirmed")
    from mooring.model.names import shown

    what = shown(names[0]) if len(names) == 1 else f"these {len(names)} workloads"
    if not typer.confirm(f"Stop and remove {what}?", err=True):
        raise typer.Exit(ExitCode.FAILURE)
