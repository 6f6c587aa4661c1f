"""`mooring quarantine`: tasks that run on nodes but are not in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.help import App
from mooring.cli.input.groups import with_groups
from mooring.cli.input.options import CLUSTER, OutputOption, ServerOption
from mooring.cli.rendering.formatting import age, instant, plural
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Format,
    Listing,
    show_document,
    show_line,
    show_table,
)

if TYPE_CHECKING:
    from mooring.wire.cluster.quarantine import QuarantineEnd, QuarantineList

app = App()
quarantine_app = App(invoke_without_command=True)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=CLUSTER)

_COLUMNS = (Column("NODE"), Column("TASK"), Column("WORKLOAD"), Column("SEEN", number=True), Column("ENDS"))


@quarantine_app.callback()
@with_groups
def quarantine(ctx: typer.Context, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List or stop tasks that run on nodes but are not in the database, for example after a restore."""
    if ctx.invoked_subcommand is not None:
        return
    from mooring.cli.connection import connect

    with connect(server) as client:
        _show(client.quarantine(), output)


@quarantine_app.command()
def end(
    target: Annotated[
        str | None, typer.Argument(metavar="NODE|TASK", help="Node, for all of its tasks, or the id of a task.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop the tasks of all nodes.")] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Stop tasks that are not in the database."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        left = client.end_quarantined(_request(target, everything))
    if output.is_document:
        show_document(left, output)
    else:
        confirmed = sum(task.confirmed_by is not None for task in left.tasks)
        show_line(f"{plural(confirmed, 'task')} will be stopped")


def _request(target: str | None, everything: bool) -> QuarantineEnd:
    from uuid import UUID

    from mooring.cli.input.requests import build, checked_name
    from mooring.wire.cluster.quarantine import QuarantineEnd

    if (target is None) is not everything:
        raise typer.BadParameter("give a node, the id of a task, or --all")
    if target is None:
        return QuarantineEnd(everything=True)
    try:
        return QuarantineEnd(task_id=UUID(target))
    except ValueError:
        return build(QuarantineEnd, node=checked_name(target))


def _show(found: QuarantineList, output: Listing) -> None:
    if output.is_document:
        show_document(found, output)
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
