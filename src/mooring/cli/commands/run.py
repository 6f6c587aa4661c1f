"""`mooring run`: a command on the cluster as if it ran here."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mooring.cli.exits import ExitCode, say
from mooring.cli.option_groups import ContainerOptions, PlaceOptions, StartOptions, TermOptions, with_groups
from mooring.cli.options import WORK, DryRunOption, InOption, ServerOption
from mooring.cli.output import Format

if TYPE_CHECKING:
    from mooring.cli.interrupts import Interrupts
    from mooring.client import Client
    from mooring.wire.api import WorkloadAccepted, WorkloadDetail

app = typer.Typer()


class Restart(StrEnum):
    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


# Options end at the first word of the command, so that `mooring run ls -l` means what it says.
@app.command(rich_help_panel=WORK, context_settings={"allow_interspersed_args": False})
@with_groups
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run.")],
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call it; else one is made up.")] = None,
    container: ContainerOptions,
    place: PlaceOptions,
    in_: InOption = None,
    workdir: Annotated[str | None, typer.Option(metavar="FOLDER", help="The folder on the node to run in.")] = None,
    restart: Annotated[Restart | None, typer.Option(help="When to start it again after it ended.")] = None,
    begin: StartOptions,
    terms: TermOptions,
    dry_run: DryRunOption = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print its name and leave it running.")] = False,
    server: ServerOption = None,
) -> None:
    """Run a command on the cluster, show its output live, and exit with its exit code. An array is left running."""
    from mooring.cli.connection import connect
    from mooring.cli.explaining import show_explanation
    from mooring.cli.interrupts import Interrupts
    from mooring.cli.requests import build, checked_name
    from mooring.wire.api import WorkloadRequest
    from mooring.wire.containers import ContainerRequest

    request = build(
        WorkloadRequest,
        name=checked_name(name),
        kind="session",
        booking=in_,
        containers=[build(ContainerRequest, **container.fields(command), working_folder=workdir)],
        volumes=container.volumes,
        restart=restart.value if restart else None,
        **place.fields(),
        **begin.fields(),
        **terms.fields(),
    )
    with connect(server) as client:
        if dry_run:
            show_explanation(client.dry_run(request), Format.TABLE)
            return
        if detach or terms.array is not None:
            print(client.submit(request).name)
            return
        with Interrupts() as interrupts:
            # An interrupt here would leave behind a session whose name nobody knows.
            with interrupts.held():
                accepted = client.submit(request)
            code = _follow(client, accepted, interrupts)
    raise typer.Exit(code)


def _follow(client: Client, accepted: WorkloadAccepted, interrupts: Interrupts) -> int:
    """Stay with the session to its end; an interrupt detaches from it or cancels it."""
    from mooring.cli.following import Follower, exit_status
    from mooring.cli.interrupts import Interrupted
    from mooring.cli.progress import Progress

    cancelled: ExitCode | None = None
    with Progress() as progress:
        follower = Follower(client, str(accepted.id), progress=progress, undisturbed=interrupts.held)
        while True:
            try:
                detail = follower.until_end()
                break
            except Interrupted as interrupt:
                progress.clear()
                if cancelled is not None:
                    say(f"{accepted.name} is still stopping; `mooring status {accepted.name}` shows it")
                    return cancelled
                try:
                    choice = _ask() if interrupt.signal is signal.SIGINT else "cancel"
                except Interrupted:
                    choice = "cancel"
                if choice == "detach":
                    say(f"detached; `mooring logs -f {accepted.name}` brings the output back")
                    return ExitCode.OK
                if choice == "cancel":
                    say(f"cancelling {accepted.name}")
                    client.remove(str(accepted.id))
                    cancelled = ExitCode(128 + interrupt.signal)
    if cancelled is not None:
        return cancelled
    code = exit_status(detail)
    if code:
        _say_why(detail)
    return code


def _ask() -> Literal["detach", "cancel", "stay"]:
    """What an interrupt means. Where nobody can be asked, it means the end."""
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
    """What the exit code alone does not tell."""
    if (detail.reason or {}).get("code") == "exited":
        return
    from mooring.cli.cures import cure
    from mooring.cli.words import reason_text

    reasons = [task.reason for task in detail.tasks if task.current and task.reason]
    why = reason_text(detail.reason) or (reasons[0] if reasons else "")
    if why:
        say(f"error: {why}")
    if advice := cure(detail):
        say(f"hint: {advice}")
