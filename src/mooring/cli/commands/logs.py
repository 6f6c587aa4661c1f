"""`mooring logs`: what a task wrote."""

from __future__ import annotations

import asyncio
import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import typer

from mooring.cli.options import WORK, ContainerOption, ServerOption, WorkloadArgument

app = typer.Typer()


@app.command(rich_help_panel=WORK)
def logs(
    name: WorkloadArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the end, for all of its tasks.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Begin with the last so many lines.")] = None,
    task: Annotated[int | None, typer.Option("--task", "-t", min=0, help="Which task; else the first.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Which try at it; else the newest.")] = None,
    container: ContainerOption = None,
    server: ServerOption = None,
) -> None:
    """Show the output of a task, or follow that of all tasks of a workload at once."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        detail = client.workload(name)
        # One's own output may do to the terminal what it likes; another tenant's may only colour it.
        foreign = sys.stdout.isatty() and detail.user != client.me().username
        if not (follow and task is None and attempt is None and detail.replicas > 1):
            pieces: Iterable[bytes] = client.logs(
                name, task=task, attempt=attempt, tail=tail, follow=follow, container=container
            )
            for piece in tamed(pieces) if foreign else pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            return
    from mooring.cli.following_all import follow_all

    with suppress(KeyboardInterrupt):
        asyncio.run(follow_all(server, detail, tail=tail, container=container, clean=tamed if foreign else iter))


_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


def tamed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Output without control characters other than line ends, tabs and colours; the others are shown as escapes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        parts = _COLOUR.split(decoder.decode(piece))
        yield "".join(part if _COLOUR.fullmatch(part) else _escaped(part) for part in parts).encode()


def _escaped(text: str) -> str:
    return "".join(
        sign if sign.isprintable() or sign in "\n\r\t" else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )
