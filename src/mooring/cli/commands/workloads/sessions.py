"""`mooring session`: create, list, show and cancel sessions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mooring.cli.exits import say_if_simulated
from mooring.cli.help import App
from mooring.cli.input.files import FilesOptions
from mooring.cli.input.option_groups import (
    ContainerOptions,
    PlacementOptions,
    ScheduleOptions,
    StartOptions,
    with_groups,
)
from mooring.cli.input.options import (
    WORK,
    ForceOption,
    OutputOption,
    ServerOption,
    TasksOption,
    WorkloadArgument,
    WorkloadsArgument,
)
from mooring.cli.rendering.output import TABLE, Format, Listing

app = App()
session_app = App(help="Manage sessions: interactive, batch, inference and system.", no_args_is_help=True)
app.add_typer(session_app, name="session", rich_help_panel=WORK)


class Type(StrEnum):
    INTERACTIVE = "interactive"
    BATCH = "batch"
    INFERENCE = "inference"
    SYSTEM = "system"


class Mode(StrEnum):
    SINGLE_NODE = "single-node"
    MULTI_NODE = "multi-node"


# Options end at the first word of the command, so that the command keeps its own options.
@session_app.command(context_settings={"allow_interspersed_args": False})
@with_groups
def create(
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command to start.")] = None,
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    type_: Annotated[Type, typer.Option("--type", help="Description, shown in lists.")] = Type.INTERACTIVE,
    size: Annotated[
        int | None, typer.Option("--size", metavar="N", min=1, help="Number of tasks that start together (default 1).")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Place all tasks on a single node, or on any nodes (default).")
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NODE", help="Preferred node; repeatable.")
    ] = None,
    only_nodes: Annotated[
        bool, typer.Option("--only-nodes", help="Only use the preferred nodes; requires the right `designate`.")
    ] = False,
    container: ContainerOptions,
    files: FilesOptions,
    placement: PlacementOptions,
    begin: StartOptions,
    schedule_options: ScheduleOptions,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Create a session, print its name and return without waiting for it."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.rendering.output import show_document, show_line
    from mooring.wire.workloads.workload_fields import SessionRequest

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
        **placement.fields(),
        **begin.fields(),
        **schedule_options.fields(),
    )
    with connect(server) as client:
        accepted = client.create_session(files.attach(client, request, command))
    say_if_simulated(accepted.name, accepted.simulated, chosen=bool(request.pool or request.booking))
    if output.is_document:
        show_document(accepted, output)
    else:
        show_line(accepted.name)


@session_app.command("list")
@with_groups
def list_(
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended more than an hour ago.")] = False,
    everyone: Annotated[
        bool, typer.Option("--everyone", "-A", help="Include those of all users; for administrators.")
    ] = False,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only those with this status.")] = None,
    type_: Annotated[Type | None, typer.Option("--type", help="Only those of this type.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None,
    output: Listing = TABLE,
    server: ServerOption = None,
) -> None:
    """List your sessions."""
    from mooring.cli.commands.workloads.ps import Source, show_workloads
    from mooring.client.operations.operation import given

    query = given(
        all=all_ or None,
        everyone=everyone or None,
        status=status.upper() if status else None,
        type=type_.value if type_ else None,
    )
    show_workloads(Source(server, "/api/sessions", query, limit), output, everyone=everyone)


@session_app.command()
def show(
    name: WorkloadArgument, tasks: TasksOption = False, output: OutputOption = Format.TABLE, server: ServerOption = None
) -> None:
    """Show a session: the nodes of its tasks, and why it is pending or failed."""
    from mooring.cli.connection import connect
    from mooring.cli.rendering.workload_details import show_workload

    with connect(server) as client:
        show_workload(client, client.session(name), output, all_tasks=tasks)


@session_app.command()
def cancel(names: WorkloadsArgument, force: ForceOption = False, server: ServerOption = None) -> None:
    """Cancel sessions. Pending ones end at once, running ones are stopped."""
    from mooring.cli.commands.workloads.workloads import end_each
    from mooring.cli.connection import connect

    with connect(server) as client:
        worst = end_each(names, lambda name: client.cancel_session(name, force=force))
    raise typer.Exit(worst)
