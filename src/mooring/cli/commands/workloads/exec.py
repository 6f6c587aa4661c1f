"""`mooring exec` and `mooring attach`: be in a task that runs."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mooring.cli.options import WORK, ContainerOption, ServerOption, TaskOption, WorkloadArgument

app = typer.Typer()


class _CommandLast(TyperCommand):
    """Our options stand before the name or right after it: what follows is the command, with all of its dashes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, *rest = self._from_first_word(ctx, args) or [""]
        command = self._from_first_word(ctx, rest)
        before = args[: len(args) - len(command)]
        return super().parse_args(ctx, args if "--" in before else [*before, "--", *command])

    def _from_first_word(self, ctx: Any, words: list[str]) -> list[str]:
        """Without the options that come first."""
        options = [each for each in self.params if each.param_type_name == "option"]
        parser = TyperCommand(self.name, params=options).make_parser(ctx)
        parser.allow_interspersed_args = False
        _, rest, _ = parser.parse_args(list(words))
        return rest


@app.command("exec", cls=_CommandLast, rich_help_panel=WORK)
def run_command(
    name: WorkloadArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run; all that follows is its own.")],
    container: ContainerOption = None,
    index: TaskOption = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass your input on.")] = False,
    terminal: Annotated[bool, typer.Option("--terminal", "-t", help="With a terminal, as for a shell.")] = False,
    server: ServerOption = None,
) -> None:
    """Run a command in a task, beside what runs there: `mooring exec web -it sh`.

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
    """Be connected with the input and output of a container itself.

    Ctrl-C leaves it as it is. If it has a terminal, Ctrl-C goes to it as every key does, and Ctrl-P Ctrl-Q leaves.
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
    from mooring.cli.conversing import converse, running_task, terminal_size

    async with connect_async(server) as client:
        task = running_task(await client.workload(name), index)
        rows, columns = terminal_size()
        async with client.run_command(
            str(task.id), command, container=container, terminal=terminal, rows=rows, columns=columns
        ) as channel:
            return await converse(channel, interactive=interactive, terminal=terminal)


async def _attach(server: str | None, name: str, container: str | None, index: int | None) -> int:
    from mooring.cli.connection import connect_async
    from mooring.cli.conversing import DetachKeys, converse, has_terminal, running_task

    async with connect_async(server) as client:
        detail = await client.workload(name)
        task = running_task(detail, index)
        terminal = sys.stdin.isatty() and has_terminal(detail, container)
        async with client.attach(str(task.id), container=container) as channel:
            return await converse(channel, interactive=True, terminal=terminal, left_by=DetachKeys())
