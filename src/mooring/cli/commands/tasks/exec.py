"""`mooring exec` and `mooring attach`: access to a running task."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Annotated

import typer

from mooring.cli.exits import say
from mooring.cli.help import App
from mooring.cli.input.command_last import CommandLast
from mooring.cli.input.options import (
    WORK,
    ContainerOption,
    ServerOption,
    TaskOption,
    WorkloadArgument,
)

app = App()


@app.command("exec", cls=CommandLast, rich_help_panel=WORK)
def run_command(
    name: WorkloadArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="Command to run, with its own options.")],
    container: ContainerOption = None,
    index: TaskOption = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Pass standard input to the command.")
    ] = False,
    terminal: Annotated[bool, typer.Option("--terminal", "-t", help="Allocate a terminal, as for a shell.")] = False,
    server: ServerOption = None,
) -> None:
    """Run an additional command in a running task: `mooring exec web -it sh`.

    Exits with the command's exit code.
    """
    raise typer.Exit(asyncio.run(_run(server, name, command, container, index, interactive, terminal)))


@app.command(rich_help_panel=WORK)
def attach(
    name: WorkloadArgument,
    container: ContainerOption = None,
    index: TaskOption = None,
    server: ServerOption = None,
) -> None:
    """Connect to the standard input and output of a container or process.

    Ctrl-C detaches. If it has a terminal, it receives every key, also Ctrl-C, and Ctrl-P Ctrl-Q detaches. A process
    can be attached to if it was started with -i or -t.
    """
    with suppress(KeyboardInterrupt):
        raise typer.Exit(asyncio.run(_attach(server, name, container, index)))


async def _run(
    server: str | None,
    name: str,
    command: list[str],
    container: str | None,
    index: int | None,
    interactive: bool,
    terminal: bool,
) -> int:
    from mooring.cli.connection import connect_async
    from mooring.cli.interaction.terminal import run_session, running_task, terminal_size

    async with connect_async(server) as client:
        task = running_task(await client.workload(name), index)
        rows, columns = terminal_size()
        async with client.run_command(
            str(task.id), command, container=container, terminal=terminal, rows=rows, columns=columns
        ) as channel:
            return await run_session(channel, interactive=interactive, terminal=terminal) or 0


async def _attach(server: str | None, name: str, container: str | None, index: int | None) -> int:
    from mooring.cli.connection import connect_async
    from mooring.cli.interaction.terminal import (
        DetachKeys,
        has_terminal,
        run_session,
        running_task,
    )

    async with connect_async(server) as client:
        detail = await client.workload(name)
        task = running_task(detail, index)
        terminal = sys.stdin.isatty() and has_terminal(detail, container)
        async with client.attach(str(task.id), container=container) as channel:
            code = await run_session(channel, interactive=True, terminal=terminal, detach_keys=DetachKeys())
    if code is None:
        say(f"detached; `mooring attach {name}` attaches again")
    return code or 0
