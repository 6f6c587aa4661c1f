"""`mooring update` and `mooring rollout`: deployments from one revision to the next, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mooring.cli.exits import TimedOut
from mooring.cli.option_groups import ResourceOptions, RolloutOptions, with_groups
from mooring.cli.options import WORK, OutputOption, ServerOption, WorkloadArgument
from mooring.cli.output import Column, Format, show_fields, show_json, show_line, show_table
from mooring.cli.words import age, amounts, instant
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.client import Client
    from mooring.wire.api import WorkloadView
    from mooring.wire.rollouts import RolloutView

app = typer.Typer()
rollout_app = typer.Typer(help="Deployments on their way to another revision, and back.", no_args_is_help=True)
app.add_typer(rollout_app, name="rollout", rich_help_panel=WORK)

_REVISIONS = (
    Column("REVISION", number=True),
    Column("CAUSE"),
    Column("IMAGES"),
    Column("RESOURCES", wide=True),
    Column("BY"),
    Column("AGE", number=True),
)


@dataclass(frozen=True, kw_only=True)
class EndingOptions:
    """Whether to wait until a rollout is over, and how to say where it stands then."""

    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until all replicas are replaced.")] = False
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait at most.")] = None
    output: OutputOption = Format.TABLE
    server: ServerOption = None


@app.command(rich_help_panel=WORK)
@with_groups
def update(
    name: WorkloadArgument,
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What to run, after --.")] = None,
    *,
    image: Annotated[str | None, typer.Option("--image", "-i", metavar="IMAGE", help="Another image.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Set beside what there is; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Take away from the environment; may be repeated.")
    ] = None,
    resources: ResourceOptions,
    container: Annotated[
        str | None, typer.Option(metavar="CONTAINER", help="Which of several is meant; else the first.")
    ] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", "-n", min=1, help="How many to keep running.")] = None,
    rollout: RolloutOptions,
    cause: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the list of revisions.")] = None,
    ending: EndingOptions,
) -> None:
    """Change what the replicas of a deployment run; they are replaced step by step."""
    from mooring.cli.connection import connect
    from mooring.cli.requests import build, checked_name, environment
    from mooring.wire.rollouts import UpdateRequest

    changes: dict[str, Any] = {
        "image": image,
        "command": command or None,
        "environment": {**environment(env), **dict.fromkeys(unset or ())} or None,
        "resources": resources.amounts,
        "replicas": replicas,
        "rollout": rollout.request(),
    }
    if all(value is None for value in changes.values()):
        raise InvalidInput("there is nothing to change: give --image IMAGE, --env NAME=VALUE, --cpu N or the like")
    request = build(UpdateRequest, container=checked_name(container, what="container"), cause=cause, **changes)
    with connect(ending.server) as client:
        _finish(client, client.update(name, request), ending)


@rollout_app.command()
@with_groups
def status(name: WorkloadArgument, ending: EndingOptions) -> None:
    """Show how far a deployment is on its way to its newest revision."""
    from mooring.cli.connection import connect

    with connect(ending.server) as client:
        detail = client.workload(name)
        rollout = _rollout(detail)
        if ending.wait or ending.output is Format.JSON:
            _finish(client, detail, ending)
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
            ("reason", rollout.reason or ""),
        ]
    )


@rollout_app.command()
def pause(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """Replace no more replicas until it is resumed."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        _finish(client, client.pause_rollout(name), EndingOptions(output=output))


@rollout_app.command()
@with_groups
def resume(name: WorkloadArgument, ending: EndingOptions) -> None:
    """Go on after a pause, or once more where it stalled."""
    from mooring.cli.connection import connect

    with connect(ending.server) as client:
        _finish(client, client.resume_rollout(name), ending)


@rollout_app.command()
@with_groups
def undo(
    name: WorkloadArgument,
    to: Annotated[
        int | None, typer.Option(metavar="REVISION", min=1, help="Which one to go back to; else the one before.")
    ] = None,
    *,
    ending: EndingOptions,
) -> None:
    """Go back to an earlier revision; what still runs it stays as it is."""
    from mooring.cli.connection import connect

    with connect(ending.server) as client:
        _finish(client, client.roll_back(name, to), ending)


@rollout_app.command()
def revisions(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List what a deployment was made from over time."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.revisions(name)
    if output is Format.JSON:
        show_json(found)
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
def endpoints(name: WorkloadArgument, output: OutputOption = Format.TABLE, server: ServerOption = None) -> None:
    """List the tasks that somebody may be sent to: they run, are ready, and are not about to leave."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        found = client.endpoints(name)
    if output is Format.JSON:
        show_json(found)
        return
    columns = (Column("TASK", number=True), Column("NODE"), Column("ADDRESS"), Column("PORTS"), Column("REVISION"))
    rows = [
        [str(each.index), each.node, each.address or "", ", ".join(map(str, each.ports)), str(each.revision)]
        for each in found.endpoints
    ]
    show_table(columns, rows, output)


def _finish(client: Client, view: WorkloadView, ending: EndingOptions) -> None:
    """Wait if that is wanted, then say where it stands; a rollout that stalled is a failure."""
    from mooring.cli.progress import Progress
    from mooring.cli.waiting import describe, has_ended, wait_until

    if ending.wait:
        with Progress() as progress:
            waited = wait_until(
                client,
                str(view.id),
                lambda detail: has_ended(detail) or _rollout(detail).phase != "rolling",
                timeout_seconds=ending.timeout,
                progress=progress,
            )
        view = waited.detail
        if not waited.met:
            raise TimedOut(f"after {ending.timeout:g} seconds {describe(view)}")
        rollout = _rollout(view)
        if rollout.phase == "stalled":
            raise MooringError(f"{view.name}: {rollout.reason}", code="rollout-stalled")
    if ending.output is Format.JSON:
        show_json(view)
    else:
        show_line(describe(view))


def _rollout(view: WorkloadView) -> RolloutView:
    if view.rollout is None:
        raise InvalidInput(f"{view.name} is a {view.kind}; only deployments are rolled out")
    return view.rollout
