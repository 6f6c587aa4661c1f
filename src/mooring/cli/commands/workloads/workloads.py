"""`mooring scale`, `extend`, `cancel` and `rm`: change and end workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import ExitCode, report
from mooring.cli.help import App
from mooring.cli.input.completion import complete_workloads
from mooring.cli.input.options import (
    WORK,
    ForceOption,
    OutputOption,
    ServerOption,
    WorkloadArgument,
    WorkloadsArgument,
    YesOption,
)
from mooring.cli.rendering.formatting import plural, workload_status
from mooring.cli.rendering.output import Format, show_document, show_line
from mooring.model.errors import InvalidInput, MooringError, NotFound, Unavailable

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.workloads.workloads import WorkloadView

app = App()

_PAGE = 200
_NAMED = 5
"""Workloads that a question names."""


@app.command(rich_help_panel=WORK)
def scale(
    name: WorkloadArgument,
    replicas: Annotated[
        int, typer.Argument(metavar="REPLICAS", min=0, help="Number of replicas to keep running; 0 keeps none.")
    ],
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Change the number of replicas of a deployment."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        view = client.scale(name, replicas)
    if output.is_document:
        show_document(view, output)
    else:
        wanted = f", {plural(view.replicas, 'replica')} wanted" if view.replicas else ""
        show_line(f"{view.name}: {workload_status(view)}, {view.running} running{wanted}")


@app.command(rich_help_panel=WORK)
def extend(
    name: WorkloadArgument,
    longer: Annotated[str | None, typer.Argument(metavar="+TIME", help="Additional time: +30m.")] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help="New time limit: 2h.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Extend the time limit of a session, even while it runs."""
    from mooring.cli.connection import connect
    from mooring.cli.rendering.formatting import instant
    from mooring.model.calendar.durations import format_duration, parse_duration

    if (longer is None) == (time is None):
        raise InvalidInput("give either the additional time, +30m, or the new time limit, --time 2h")
    by = None if longer is None else parse_duration(longer.removeprefix("+"))
    with connect(server) as client:
        detail = client.extend(name, time=None if time is None else parse_duration(time), by=by)
    if output.is_document:
        show_document(detail, output)
        return
    end = "" if detail.deadline_at is None else f", until {instant(detail.deadline_at)}"
    show_line(f"{detail.name}: at most {format_duration(detail.time_limit_seconds or 0)}{end}")


@app.command(rich_help_panel=WORK)
def cancel(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Names or ids of workloads.", autocompletion=complete_workloads),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="NAME=VALUE", help="Cancel workloads with this label; repeatable."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Cancel workloads of this user; for administrators.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Cancel all of your workloads.")] = False,
    index: Annotated[
        str | None,
        typer.Option(metavar="INDEXES", help="Cancel only these indexes of an array: 7 or 3,5-9. The rest continues."),
    ] = None,
    yes: YesOption = False,
    force: ForceOption = False,
    server: ServerOption = None,
) -> None:
    """Cancel workloads by name, or all that match the options. They stay in lists."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import assignments
    from mooring.model.workloads.arrays import parse_indexes

    labels = assignments(label, option="--label")
    if bool(names) == bool(labels or user is not None or all_):
        raise InvalidInput("give either the names of workloads, or --label, --user or --all")
    if all_ and (labels or user is not None):
        raise InvalidInput("--all means all of your workloads; leave it out to cancel by --label or --user")
    if index is not None:
        parse_indexes(index)
        if not names:
            raise InvalidInput("--index cancels indexes of arrays that are named: mooring cancel NAME --index 7")
    with connect(server) as client:
        refs = list(names or ())
        if not refs:
            found = _living(client, labels, user)
            if not found:
                show_line("There is nothing to cancel.")
                return
            if not yes:
                confirm([view.name for view in found], "Cancel")
            # By id, since the name of another user's workload means nothing here.
            refs = [str(view.id) for view in found]
        worst = end_each(
            refs,
            lambda ref: (
                client.cancel(ref, force=force) if index is None else client.cancel_tasks(ref, index, force=force)
            ),
        )
    raise typer.Exit(worst)


def _living(client: Client, labels: Mapping[str, str], user: str | None) -> list[WorkloadView]:
    """Return the workloads that have these labels and neither have ended nor are about to, of the user or one's own."""
    from mooring.cli.interaction.waiting import has_ended

    found: list[WorkloadView] = []
    while True:
        page = client.workloads(everyone=user is not None, limit=_PAGE, offset=len(found), sort="created_at")
        found += page.workloads
        if not page.workloads or len(found) >= page.total:
            break
    return [
        view
        for view in found
        if not has_ended(view)
        and view.status != "TERMINATING"
        and (user is None or view.user == user)
        and labels.items() <= view.labels.items()
    ]


@app.command(rich_help_panel=WORK)
def rm(
    names: WorkloadsArgument, yes: YesOption = False, force: ForceOption = False, server: ServerOption = None
) -> None:
    """Stop workloads and remove them from lists."""
    from mooring.cli.connection import connect

    worst = ExitCode.OK
    with connect(server) as client:
        if not yes:
            present = []
            for name in names:
                try:
                    client.workload(name)
                    present.append(name)
                except NotFound as error:
                    worst = max(worst, report(error))
            names = present
            if names:
                confirm(names)
        worst = max(worst, end_each(names, lambda name: client.remove(name, force=force)))
    raise typer.Exit(worst)


def end_each(names: list[str], end: Callable[[str], WorkloadView]) -> ExitCode:
    """End the workloads one after the other; an error does not stop the rest."""
    worst = ExitCode.OK
    for name in names:
        try:
            view = end(name)
        except Unavailable:
            raise
        except MooringError as error:
            worst = max(worst, report(error))
        else:
            show_line(f"{view.name}: {workload_status(view)}")
    return worst


def confirm(names: list[str], action: str = "Stop and remove") -> None:
    """Ask before an action on workloads; the first few are named."""
    from mooring.cli.input.prompts import confirm as ask
    from mooring.model.names import shown

    named = ", ".join(shown(name) for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    what = named if len(names) == 1 else f"these {len(names)} workloads ({named}{more})"
    ask(f"{action} {what}?")
