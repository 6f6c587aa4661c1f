"""`mooring session`: sessions on one node or several, created, listed, shown and cancelled."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mooring.cli.option_groups import ContainerOptions, PlaceOptions, StartOptions, TermOptions, with_groups
from mooring.cli.options import (
    WORK,
    ForceOption,
    OutputOption,
    ServerOption,
    TasksOption,
    WorkloadArgument,
    WorkloadsArgument,
)
from mooring.cli.output import Format

app = typer.Typer()
session_app = typer.Typer(help="Sessions: interactive, batch, inference, system.", no_args_is_help=True)
app.add_typer(session_app, name="session", rich_help_panel=WORK)


class Type(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"
    INFERENCE = "inference"
    SYSTEM = "system"


class Mode(StrEnum):
    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"


# Options end at the first word of the command, so that its own are not taken for ours.
@session_app.command(context_settings={"allow_interspersed_args": False})
@with_groups
def create(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What to start.")] = None,
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it; else one is made up.")] = None,
    type_: Annotated[Type, typer.Option("--type", help="What it is for.")] = Type.INTERACTIVE,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", min=1, help="So many tasks that start together.")
    ] = None,
    mode: Annotated[Mode | None, typer.Option(help="All its tasks on one node, or on any.")] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NODE", help="Rather on this node; may be repeated.")
    ] = None,
    only_nodes: Annotated[
        bool, typer.Option("--only-nodes", help="On no other nodes than those; this needs a right.")
    ] = False,
    container: ContainerOptions,
    place: PlaceOptions,
    begin: StartOptions,
    terms: TermOptions,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a session and leave it to the scheduler; prints its name."""
    from mooring.cli.connection import connect
    from mooring.cli.output import show_json, show_line
    from mooring.cli.requests import build, checked_name
    from mooring.wire.workloads import SessionRequest

    request = build(
        SessionRequest,
        name=checked_name(name),
        type=type_.value,
        cluster_size=size,
        mode=mode.value if mode else None,
        nodes=node,
        nodes_strictly=only_nodes or None,
        volumes=container.volumes,
        **container.fields(command),
        **place.fields(),
        **begin.fields(),
        **terms.fields(),
    )
    with connect(server) as client:
        accepted = client.create_session(request)
    if output is Format.JSON:
        show_json(accepted)
    else:
        show_line(accepted.name)


@session_app.command("list")
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that ended longer ago.")] = False,
    everyone: Annotated[bool, typer.Option("--everyone", "-A", help="Those of all users; for administrators.")] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    type_: Annotated[Type | None, typer.Option("--type", help="Only those of this type.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """List your sessions."""
    from mooring.cli.commands.ps import all_pages, show_list
    from mooring.cli.connection import connect

    wanted, kind = status.upper() if status else None, type_.value if type_ else None
    with connect(server) as client:
        found = all_pages(
            lambda size, offset: client.sessions(
                all=all_, everyone=everyone, status=wanted, type=kind, limit=size, offset=offset
            ),
            limit,
        )
    show_list(found, output, everyone=everyone)


@session_app.command()
def show(
    name: WorkloadArgument, tasks: TasksOption = False, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show one session: where its tasks are, and why it waits or failed."""
    from mooring.cli.connection import connect
    from mooring.cli.details import show_workload

    with connect(server) as client:
        show_workload(client, client.session(name), output, all_tasks=tasks)


@session_app.command()
def cancel(names: WorkloadsArgument, force: ForceOption = False, server: ServerOption = None) -> None:
    """Cancel sessions: at once those that have no node yet."""
    from mooring.cli.commands.workloads import end_each
    from mooring.cli.connection import connect

    with connect(server) as client:
        worst = end_each(names, lambda name: client.cancel_session(name, force=force))
    raise typer.Exit(worst)
