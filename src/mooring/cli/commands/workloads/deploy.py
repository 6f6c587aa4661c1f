"""`mooring deploy`: replicas that are kept running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.option_groups import ContainerOptions, PlaceOptions, RolloutOptions, StartOptions, with_groups
from mooring.cli.options import WORK, DryRunOption, OutputOption, ServerOption
from mooring.cli.output import Format
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.wire.api import WorkloadDetail

app = typer.Typer()


@app.command(rich_help_panel=WORK)
@with_groups
def deploy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What to run, after --.")] = None,
    *,
    replicas: Annotated[int, typer.Option("--replicas", "-n", min=1, help="How many to keep running.")] = 1,
    container: ContainerOptions,
    place: PlaceOptions,
    spread_over: Annotated[
        list[str] | None,
        typer.Option("--spread-over", metavar="LABEL", help="As many here as there, by this label of nodes."),
    ] = None,
    max_per_node: Annotated[int | None, typer.Option(min=1, help="At most so many on one node.")] = None,
    gang: Annotated[bool, typer.Option("--gang", help="Start all replicas together or none.")] = False,
    min_tasks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Start at least so many replicas together or none.")
    ] = None,
    single_node: Annotated[bool, typer.Option("--single-node", help="All replicas on one node.")] = False,
    pack: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...",
            help="All replicas in one domain by these labels of nodes, the widest first: zone,rack.",
        ),
    ] = None,
    min_available: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Preemption leaves so many replicas alone.")
    ] = None,
    rollout: RolloutOptions,
    begin: StartOptions,
    dry_run: DryRunOption = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it runs.")] = True,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")] = 300.0,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Deploy replicas of a container, or of a command on the nodes themselves, and keep them running."""
    if container.image is None and not command:
        raise InvalidInput("there is nothing to run: give --image IMAGE, or a command after --")

    from mooring.cli.connection import connect
    from mooring.cli.explaining import show_explanation
    from mooring.cli.output import show_json, show_line
    from mooring.cli.progress import Progress
    from mooring.cli.requests import build, checked_name
    from mooring.cli.waiting import is_up, wait_until
    from mooring.cli.words import status_text
    from mooring.wire.api import WorkloadRequest
    from mooring.wire.containers import ContainerRequest

    request = build(
        WorkloadRequest,
        name=checked_name(name),
        kind="deployment",
        type="compute",
        replicas=replicas,
        containers=[build(ContainerRequest, **container.fields(command))],
        volumes=container.volumes,
        gang=gang or None,
        min_tasks=min_tasks,
        single_node=single_node or None,
        pack=pack.split(",") if pack else None,
        spread=True,
        max_per_node=max_per_node,
        min_available=min_available,
        rollout=rollout.request(),
        **place.fields(spread_over=spread_over),
        **begin.fields(),
    )
    with connect(server) as client:
        if dry_run:
            show_explanation(client.dry_run(request), output)
            return
        accepted = client.submit(request)
        if not wait:
            if output is Format.JSON:
                show_json(accepted)
            else:
                show_line(f"{accepted.name}: {status_text(accepted.status, simulated=accepted.simulated)}")
            return
        try:
            with Progress() as progress:
                waited = wait_until(client, str(accepted.id), is_up, timeout_seconds=timeout, progress=progress)
        except KeyboardInterrupt:
            _say_where_it_went(accepted.name)
            raise
    if not waited.met:
        raise _late(waited.detail, timeout)
    if waited.detail.status != "RUNNING":
        raise _failed(waited.detail)
    if output is Format.JSON:
        show_json(waited.detail)
    else:
        show_line(_summary(waited.detail))


def _summary(detail: WorkloadDetail) -> str:
    from mooring.cli.words import status_text

    nodes = sorted({task.node for task in detail.tasks if task.current and task.node})
    where = f" on {', '.join(nodes)}" if nodes else ""
    status = status_text(detail.status, simulated=detail.simulated)
    return f"{detail.name}: {status}, {detail.running} of {detail.replicas} replicas{where}"


def _failed(detail: WorkloadDetail) -> MooringError:
    from mooring.cli.cures import cure

    reason = detail.reason or {}
    message = str(reason.get("message") or f"it is {detail.status.lower()}")
    return MooringError(
        f"{detail.name} does not run: {message}",
        code=str(reason.get("code") or "not-running"),
        details={"hint": cure(detail) or f"`mooring history {detail.name}` shows what happened"},
    )


def _late(detail: WorkloadDetail, seconds: float) -> MooringError:
    from mooring.cli.cures import cure
    from mooring.cli.exits import TimedOut
    from mooring.cli.waiting import describe

    stays = f"it stays in the queue; `mooring explain {detail.name}` shows why, `mooring rm {detail.name}` ends it"
    advice = cure(detail)
    return TimedOut(
        f"after {seconds:g} seconds {describe(detail)}",
        details={"hint": f"{advice}; {stays}" if advice else stays},
    )


def _say_where_it_went(name: str) -> None:
    from mooring.cli.exits import say

    say(f"{name} goes on without you; `mooring status {name}` shows it, `mooring rm {name}` ends it")
