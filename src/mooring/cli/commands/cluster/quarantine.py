"""`mooring quarantine`: tasks that run on nodes and that the database does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.output import Column, Format, show_json, show_line, show_table
from mooring.cli.words import age, instant, plural

if TYPE_CHECKING:
    from mooring.wire.quarantine import QuarantineEnd, QuarantineList

app = typer.Typer()
quarantine_app = typer.Typer(invoke_without_command=True)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=CLUSTER)

_COLUMNS = (Column("NODE"), Column("TASK"), Column("WORKLOAD"), Column("SEEN", number=True), Column("ENDS"))


@quarantine_app.callback()
def quarantine(ctx: typer.Context, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List tasks that nodes run unknown to the database, as after a restore; or let them be ended."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quarantine(), output)


@quarantine_app.command()
def end(
    target: Annotated[str | None, typer.Argument(metavar="NODE|TASK", help="All of a node, or one task.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those of every node.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Let tasks be ended that the database does not know."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        left = client.end_quarantined(_request(target, everything))
    if output is Format.JSON:
        show_json(left)
    else:
        ending = sum(task.confirmed_by is not None for task in left.tasks)
        show_line(f"{plural(ending, 'task')} will be ended")


def _request(target: str | None, everything: bool) -> QuarantineEnd:
    from uuid import UUID

    from mooring.cli.requests import build, checked_name
    from mooring.wire.quarantine import QuarantineEnd

    if (target is None) is not everything:
        raise typer.BadParameter("name a node or a task, or say --all")
    if target is None:
        return QuarantineEnd(everything=True)
    try:
        return QuarantineEnd(task_id=UUID(target))
    except ValueError:
        return build(QuarantineEnd, node=checked_name(target))


def _show(found: QuarantineList, output: Format) -> None:
    if output is Format.JSON:
        show_json(found)
        return
    rows = [
        [
            task.node,
            str(task.task_id),
            task.workload_name,
            age(task.seen_at),
            f"now, by {task.confirmed_by}" if task.confirmed_by else instant(task.ends_at),
        ]
        for task in found.tasks
    ]
    show_table(_COLUMNS, rows, output)
