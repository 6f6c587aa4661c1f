"""`mooring run`: run a command on the cluster as if it ran locally."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mooring.cli.exits import ExitCode, say, say_if_simulated
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
    DryRunOption,
    InOption,
    OutputOption,
    ServerOption,
)
from mooring.cli.interaction.downloads import DownloadOptions
from mooring.cli.rendering.output import Format, show_document
from mooring.model.errors import Unavailable

if TYPE_CHECKING:
    from mooring.cli.interaction.interrupts import Interrupts
    from mooring.cli.interaction.session_input import InputMode
    from mooring.client import Client
    from mooring.wire.workloads.workloads import WorkloadAccepted, WorkloadDetail, WorkloadRequest

app = App()


class Restart(StrEnum):
    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


# Options end at the first word of the command, so that `mooring run ls -l` passes -l to ls.
@app.command(rich_help_panel=WORK, context_settings={"allow_interspersed_args": False})
@with_groups
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Command to run.")],
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name (default: generated).")] = None,
    container: ContainerOptions,
    placement: PlacementOptions,
    in_: InOption = None,
    workdir: Annotated[str | None, typer.Option(metavar="FOLDER", help="Working directory on the node.")] = None,
    files: FilesOptions,
    results: DownloadOptions,
    restart: Annotated[Restart | None, typer.Option(help="Restart policy after the command exits.")] = None,
    begin: StartOptions,
    schedule_options: ScheduleOptions,
    dry_run: DryRunOption = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the session's name and return while it runs.")
    ] = False,
    output: OutputOption = Format.TABLE,
    server: ServerOption = None,
) -> None:
    """Run a command on the cluster, stream its output, and exit with its exit code.

    Input from a pipe or file is passed on. `-it` connects your terminal: Ctrl-P Ctrl-Q detaches, `mooring attach`
    returns. An array is submitted and left running.
    """
    from mooring.cli.connection import connect
    from mooring.cli.input.requests import build, checked_name
    from mooring.cli.interaction.session_input import InputMode
    from mooring.cli.rendering.explanation import show_dry_run
    from mooring.wire.workloads.containers import ContainerRequest
    from mooring.wire.workloads.workloads import WorkloadRequest

    follows = not (detach or dry_run or schedule_options.array is not None)
    mode = InputMode.NONE
    if follows:
        restarts = restart not in (None, Restart.NEVER)
        mode = InputMode.of(interactive=container.interactive, terminal=container.terminal, restarts=restarts)
    fields = container.fields(command) | mode.fields()
    request = build(
        WorkloadRequest,
        name=checked_name(name),
        kind="session",
        booking=in_,
        containers=[build(ContainerRequest, **fields, working_folder=workdir)],
        volumes=container.volumes,
        restart=restart.value if restart else None,
        **placement.fields(),
        **begin.fields(),
        **schedule_options.fields(),
    )
    results.check(waits=follows)
    with connect(server) as client:
        if dry_run:
            raise typer.Exit(show_dry_run(client.dry_run(request), output))
        request = files.attach(client, request, command)
        if not follows:
            submitted = client.submit(request)
            say_if_simulated(submitted.name, submitted.simulated, chosen=bool(request.pool or request.booking))
            if output.is_document:
                show_document(submitted, output)
            else:
                print(submitted.name)
            return
        code = submit_and_follow(client, server, request, mode, results=results)
    raise typer.Exit(code)


def submit_and_follow(
    client: Client,
    server: str | None,
    request: WorkloadRequest,
    mode: InputMode,
    *,
    hang_up: bool = False,
    results: DownloadOptions | None = None,
) -> int:
    """Submit a session, follow it to its end, and return its exit code; `hang_up`: a closed terminal cancels it.

    `results` are fetched after its end.
    """
    from mooring.cli.interaction.interrupts import Interrupts

    with Interrupts(hang_up=hang_up) as interrupts:
        # An interrupt here would leave a session whose name the user does not know.
        with interrupts.held():
            accepted = client.submit(request)
        say_if_simulated(accepted.name, accepted.simulated, chosen=bool(request.pool or request.booking))
        code = _follow(client, server, accepted, interrupts, mode)
    if results is not None and not results.fetch(client, str(accepted.id)):
        return code or ExitCode.FAILURE
    return code


def _follow(
    client: Client, server: str | None, accepted: WorkloadAccepted, interrupts: Interrupts, mode: InputMode
) -> int:
    """Follow the session to its end. An interrupt detaches from it or cancels it."""
    from mooring.cli.interaction.follow_output import Follower, exit_status
    from mooring.cli.interaction.interrupts import Interrupted
    from mooring.cli.interaction.session_input import InputForwarder, InputMode
    from mooring.cli.interaction.terminal_session import Detached, TerminalFollower
    from mooring.cli.rendering.progress import Progress

    cancelled: ExitCode | None = None
    ref = str(accepted.id)
    forwarder = InputForwarder(server, ref) if mode is InputMode.PIPE else None
    with Progress() as progress:
        follower: Follower | TerminalFollower
        if mode is InputMode.TERMINAL:
            follower = TerminalFollower(client, server, ref, progress=progress)
        else:
            follower = Follower(client, ref, progress=progress, uninterrupted=interrupts.held)
        while True:
            try:
                detail = follower.until_end()
                break
            except Detached:
                say(f"detached; `mooring attach {accepted.name}` attaches again")
                return ExitCode.OK
            except Interrupted as interrupt:
                progress.clear()
                if cancelled is not None:
                    say(f"{accepted.name} is still stopping; `mooring status {accepted.name}` shows it")
                    return cancelled
                try:
                    asks = interrupt.signal is signal.SIGINT and forwarder is None
                    choice = _ask() if asks else "cancel"
                except Interrupted:
                    choice = "cancel"
                if choice == "detach":
                    say(f"detached; `mooring logs -f {accepted.name}` follows the output again")
                    return ExitCode.OK
                if choice == "cancel":
                    say(f"cancelling {accepted.name}")
                    client.cancel(str(accepted.id))
                    cancelled = ExitCode(128 + interrupt.signal)
    if cancelled is not None:
        return cancelled
    if forwarder is not None and forwarder.problem is not None:
        raise Unavailable(
            f"the input could not be passed on, so the session was cancelled: {forwarder.problem.message}"
        )
    code = exit_status(detail)
    if code:
        _say_why(detail)
    return code


def _ask() -> Literal["detach", "cancel", "stay"]:
    """Return the meaning of an interrupt. Without a terminal to ask on, it cancels the session."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "cancel"
    while True:
        print("\n[d]etach and leave it running, [c]ancel it, or [s]tay? ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            return "detach"
        match answer.strip().lower():
            case "d" | "detach":
                return "detach"
            case "c" | "cancel":
                return "cancel"
            case "s" | "stay":
                return "stay"


def _say_why(detail: WorkloadDetail) -> None:
    """Print the reason of a failure, which the exit code does not show."""
    if (detail.reason or {}).get("code") == "exited":
        return
    from mooring.cli.rendering.formatting import reason_text
    from mooring.cli.rendering.remedies import cure

    reasons = [task.reason for task in detail.tasks if task.current and task.reason]
    why = reason_text(detail.reason) or (reasons[0] if reasons else "")
    if why:
        say(f"error: {why}")
    if advice := cure(detail):
        say(f"hint: {advice}")
