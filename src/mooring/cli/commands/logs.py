"""`mooring logs`: what a task wrote."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from mooring.cli.options import WORK, ServerOption, WorkloadArgument

app = typer.Typer()


@app.command(rich_help_panel=WORK)
def logs(
    name: WorkloadArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the task has ended.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, help="Begin with the last so many lines.")] = None,
    task: Annotated[int | None, typer.Option("--task", "-t", min=0, help="Which task; else the first.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Which try at it; else the newest.")] = None,
    server: ServerOption = None,
) -> None:
    """Show the output of a task."""
    from mooring.cli.connection import connect

    with connect(server) as client:
        pieces: Iterable[bytes] = client.logs(name, task=task, attempt=attempt, tail=tail, follow=follow)
        # One's own output may do to the terminal what it likes; another tenant's may only colour it.
        if sys.stdout.isatty() and client.workload(name).user != client.me().username:
            pieces = tamed(pieces)
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


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
