"""`mooring update` and `mooring rollout`: roll deployments forward to a new revision, or back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.exits import TimedOut
from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.option_groups import ResourceOptions, RolloutOptions, with_groups
from mooring.cli.input.options import (
    WORK,
    OutputOption,
    ServerOption,
    WorkloadArgument,
)
from mooring.cli.rendering.formatting import (
    age,
    amounts,
    health_text,
    instant,
    last_exit_text,
    workload_status,
    workload_style,
)
from mooring.cli.rendering.output import (
    TABLE,
    Column,
    Format,
    Listing,
    Styled,
    show_document,
    show_fields,
    show_line,
    show_table,
)
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.workloads.rollouts import RolloutView
    from mooring.wire.workloads.workloads import WorkloadView

app = App()
rollout_app = App(help="Show, pause, resume and undo rollouts of deployments.", no_args_is_help=True)
app.add_typer(rollout_app, name="rollout", rich_help_panel=WORK)

_REVISIONS = (
    Column("REVISION", number=True),
    Column("CAUSE"),
    Column("IMAGES"),
    Column("RESOURCES", wide=True, cut=True),
    Column("BY"),
    Column("AGE", number=True),
)


@dataclass(frozen=True, kw_only=True)
class WaitOptions:
    """Options for waiting until a rollout ends, and for the format of its final status."""

    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas are replaced.")] = False
    timeout: Annotated[
        float | None, typer.Option(metavar="TIME", parser=seconds_at_least(0), help="Maximum time to wait: 10m.")
    ] = None
    output: OutputOption = Format.TABLE
    server: ServerOption = None


@app.command(rich_help_panel=WORK)
@with_groups
def update(
    name: WorkloadArgument,
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run, after --.")] = None,
    *,
    image: Annotated[str | None, typer.Option("--image", "-i", metavar="IMAGE", help="New image.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment variable to set; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Environment variable to remove; repeatable.")
    ] = None,
    resources: ResourceOptions,
    container: Annotated[
        str | None, typer.Option(metavar="CONTAINER", help="Container to change (default: the first).")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-n", min=1, help="Number of replicas to keep running.")
    ] = None,
    rollout: RolloutOptions,
    cause: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, shown in the list of revisions.")] = None,
    waiting: WaitOptions,
) -> None:
    """Change the command, image or resources of a deployment. Its replicas are replaced step by step."""
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name, environment
    from mooring.wire.workloads.rollouts import UpdateRequest

    changes: dict[str, Any] = {
        "image": image,
        "command": command or None,
        "environment": {**environment(env), **dict.fromkeys(unset or ())} or None,
        "resources": resources.amounts,
        "replicas": replicas,
        "rollout": rollout.request(),
    }
    if all(value is None for value in changes.values()):
        raise InvalidInput("no change is given; use --image IMAGE, --env NAME=VALUE, --cpu N or another option")
    request = build(UpdateRequest, container=checked_name(container, what="container"), cause=cause, **changes)
    with connect(waiting.server) as client:
        _finish(client, client.update(name, request), waiting)


@rollout_app.command()
@with_groups
def status(name: WorkloadArgument, waiting: WaitOptions) -> None:
    """Show the progress of a deployment's rollout to its newest revision."""
    from mooring.cli.connection import connect

    with connect(waiting.server) as client:
        detail = client.workload(name)
        rollout = _rollout(detail)
        if waiting.wait or waiting.output.is_document:
            _finish(client, detail, waiting)
            return
    show_fields(
        [
            ("name", detail.name),
            ("revision", str(rollout.revision)),
            ("rollout", rollout.phase),
            ("updated", f"{rollout.updated} of {detail.replicas} ready"),
            ("outdated", str(rollout.outdated)),
            ("ready", f"{detail.ready} of {detail.replicas}"),
            ("surge", rollout.surge),
            ("unavailable", rollout.unavailable),
            ("steady", f"{rollout.steady_seconds}s"),
            ("drain", f"{rollout.drain_seconds}s"),
            ("stalls", instant(rollout.stalls_at) if rollout.stalls_at else ""),
            ("health", Styled(workload_status(detail), workload_style(detail))),
            ("last exit", last_exit_text(detail)),
            ("reason", rollout.reason or health_text(detail)),
        ]
    )


@rollout_app.command()
def pause(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Pause a rollout: replace no more replicas until it is resumed."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _finish(client, client.pause_rollout(name), WaitOptions(output=output))


@rollout_app.command()
@with_groups
def resume(name: WorkloadArgument, waiting: WaitOptions) -> None:
    """Resume a paused rollout, or retry a stalled one."""
    from mooring.cli.connection import connect

    with connect(waiting.server) as client:
        _finish(client, client.resume_rollout(name), waiting)


@rollout_app.command()
@with_groups
def undo(
    name: WorkloadArgument,
    to: Annotated[
        int | None, typer.Option(metavar="REVISION", min=1, help="Revision to return to (default: the previous one).")
    ] = None,
    *,
    waiting: WaitOptions,
) -> None:
    """Return to an earlier revision. Replicas that still run it are kept."""
    from mooring.cli.connection import connect

    with connect(waiting.server) as client:
        _finish(client, client.roll_back(name, to), waiting)


@rollout_app.command()
@with_groups
def revisions(name: WorkloadArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the revisions of a deployment."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.revisions(name)
    if output.is_document:
        show_document(found, output)
        return
    rows = [
        [
            f"{each.number}{'*' if each.present else ''}",
            each.cause,
            ", ".join(each.images),
            amounts(each.resources),
            each.created_by,
            age(each.created_at),
        ]
        for each in found.revisions
    ]
    show_table(_REVISIONS, rows, output)


@app.command(rich_help_panel=WORK)
@with_groups
def endpoints(name: WorkloadArgument, output: Listing = TABLE, server: ServerOption = None) -> None:
    """List the endpoints of a workload: its tasks that run, are ready and are not being stopped."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.endpoints(name)
    if output.is_document:
        show_document(found, output)
        return
    columns = (Column("TASK", number=True), Column("NODE"), Column("ADDRESS"), Column("PORTS"), Column("REVISION"))
    rows = [
        [str(each.index), each.node, each.address or "", ", ".join(map(str, each.ports)), str(each.revision)]
        for each in found.endpoints
    ]
    show_table(columns, rows, output)


def _finish(client: Client, view: WorkloadView, waiting: WaitOptions) -> None:
    """Wait if requested, then print the rollout's status. A stalled rollout is a failure."""
    from mooring.cli.interaction.waiting import describe, has_ended, is_failing, wait_until
    from mooring.cli.rendering.progress import Progress

    if waiting.wait:
        with Progress() as progress:
            waited = wait_until(
                client,
                str(view.id),
                lambda detail: has_ended(detail) or _rollout(detail).phase != "rolling" or is_failing(detail),
                timeout_seconds=waiting.timeout,
                progress=progress,
            )
        view = waited.detail
        if not waited.met:
            raise TimedOut(f"timed out after {waiting.timeout:g} seconds: {describe(view)}")
        rollout = _rollout(view)
        if rollout.phase == "rolling" and is_failing(view):
            raise MooringError(
                f"{view.name}: revision {rollout.revision} is {view.health}: {health_text(view)}",
                code=str(view.health),
                details={"hint": f"it is retried; `mooring rollout undo {view.name}` rolls back"},
            )
        if rollout.phase == "stalled":
            raise MooringError(f"{view.name}: {rollout.reason}", code="rollout-stalled")
    if waiting.output.is_document:
        show_document(view, waiting.output)
    else:
        show_line(describe(view))


def _rollout(view: WorkloadView) -> RolloutView:
    if view.rollout is None:
        raise InvalidInput(f"{view.name} is a {view.kind}, not a deployment, and has no rollouts")
    return view.rollout
