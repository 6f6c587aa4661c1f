"""`mooring deploy`: create a deployment, whose replicas are kept running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.exits import say_if_simulated
from mooring.cli.help import App
from mooring.cli.input.durations import seconds_at_least
from mooring.cli.input.option_groups import (
    ContainerOptions,
    PlacementOptions,
    RolloutOptions,
    StartOptions,
    with_groups,
)
from mooring.cli.input.options import (
    WORK,
    DryRunOption,
    OutputOption,
    ServerOption,
)
from mooring.cli.rendering.output import Format
from mooring.model.errors import InvalidInput, MooringError

if TYPE_CHECKING:
    from mooring.wire.workloads.workloads import WorkloadDetail

app = App()


@app.command(rich_help_panel=WORK)
@with_groups
def deploy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name.")],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run, after --.")] = None,
    *,
    replicas: Annotated[int, typer.Option("--replicas", "-n", min=1, help="Number of replicas to keep running.")] = 1,
    container: ContainerOptions,
    placement: PlacementOptions,
    spread_over: Annotated[
        list[str] | None,
        typer.Option(
            "--spread-over",
            metavar="LABEL",
            help="Spread replicas evenly over the values of this node label; repeatable.",
        ),
    ] = None,
    max_per_node: Annotated[int | None, typer.Option(min=1, help="Maximum number of replicas on a node.")] = None,
    gang: Annotated[bool, typer.Option("--gang", help="Start all replicas together or none.")] = False,
    min_tasks: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Minimum number of replicas to start together.")
    ] = None,
    single_node: Annotated[bool, typer.Option("--single-node", help="Place all replicas on one node.")] = False,
    pack: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL,...",
            help="Place all replicas in one topology domain of these node labels, widest first: zone,rack.",
        ),
    ] = None,
    min_available: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Minimum number of replicas that preemption leaves running.")
    ] = None,
    rollout: RolloutOptions,
    begin: StartOptions,
    dry_run: DryRunOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return at once (default: wait until all replicas are ready).")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", hidden=True)] = True,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="TIME", parser=seconds_at_least(0), help="Maximum time to wait (default 5m).", show_default=False
        ),
    ] = 300.0,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Deploy replicas of a container, or of a command that runs as a process, and keep them running.

    Waits until all replicas are ready, and fails if they crash or their image cannot be pulled. Ctrl-C ends the wait,
    not the deployment.
    """
    if container.image is None and not command:
        raise InvalidInput("neither an image nor a command is given; use --image IMAGE, or give a command after --")

    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.interaction.waiting import Settled, is_failing, wait_until
    from mooring.cli.rendering.explanation import show_dry_run
    from mooring.cli.rendering.formatting import status_text
    from mooring.cli.rendering.output import show_document, show_line
    from mooring.cli.rendering.progress import Progress
    from mooring.wire.workloads.containers import ContainerRequest
    from mooring.wire.workloads.workloads import WorkloadRequest

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
        **placement.fields(spread_over=spread_over),
        **begin.fields(),
    )
    with connect(server) as client:
        if dry_run:
            raise typer.Exit(show_dry_run(client.dry_run(request), output))
        accepted = client.submit(request)
        say_if_simulated(accepted.name, accepted.simulated, chosen=request.pool is not None)
        if detach or not wait:
            if output.is_document:
                show_document(accepted, output)
            else:
                show_line(f"{accepted.name}: {status_text(accepted.status, simulated=accepted.simulated)}")
            return
        try:
            with Progress() as progress:
                waited = wait_until(client, str(accepted.id), Settled(), timeout_seconds=timeout, progress=progress)
        except KeyboardInterrupt:
            _say_where_it_went(accepted.name)
            raise
    if not waited.met:
        raise _late(waited.detail, timeout)
    if waited.detail.status != "RUNNING" or is_failing(waited.detail):
        raise _failed(waited.detail)
    if output.is_document:
        show_document(waited.detail, output)
    else:
        show_line(_summary(waited.detail))


def _summary(detail: WorkloadDetail) -> str:
    from mooring.cli.rendering.formatting import status_text

    nodes = sorted({task.node for task in detail.tasks if task.current and task.node})
    where = f" on {', '.join(nodes)}" if nodes else ""
    status = status_text(detail.status, simulated=detail.simulated)
    return f"{detail.name}: {status}, {detail.running} of {detail.replicas} replicas{where}"


def _failed(detail: WorkloadDetail) -> MooringError:
    from mooring.cli.interaction.waiting import is_failing
    from mooring.cli.rendering.formatting import health_text
    from mooring.cli.rendering.remedies import cure

    if is_failing(detail):
        return MooringError(
            f"{detail.name} is {detail.health}: {health_text(detail)}",
            code=str(detail.health),
            details={
                "hint": f"it is retried in the background; `mooring logs {detail.name}` shows its output,"
                f" `mooring rm {detail.name}` removes it"
            },
        )
    reason = detail.reason or {}
    message = str(reason.get("message") or f"it is {detail.status.lower()}")
    return MooringError(
        f"{detail.name} is not running: {message}",
        code=str(reason.get("code") or "not-running"),
        details={"hint": cure(detail) or f"`mooring history {detail.name}` shows its status changes"},
    )


def _late(detail: WorkloadDetail, seconds: float) -> MooringError:
    from mooring.cli.exits import TimedOut
    from mooring.cli.interaction.waiting import describe
    from mooring.cli.rendering.remedies import cure

    stays = f"it stays in the queue; `mooring explain {detail.name}` shows why, `mooring rm {detail.name}` removes it"
    advice = cure(detail)
    return TimedOut(
        f"timed out after {seconds:g} seconds: {describe(detail)}",
        details={"hint": f"{advice}; {stays}" if advice else stays},
    )


def _say_where_it_went(name: str) -> None:
    from mooring.cli.exits import say

    say(f"{name} continues in the background; `mooring status {name}` shows it, `mooring rm {name}` removes it")
