"""`mooring cp`: files between a task and this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Thread
from typing import Annotated, BinaryIO

import typer

from mooring.cli.help import App
from mooring.cli.input.options import WORK, ContainerOption, ServerOption, TaskOption
from mooring.cli.interaction.task_files import STANDARD, first_task, unpack
from mooring.compat.tarfile_filters import tarfile
from mooring.model.errors import InvalidInput

app = App()

_PIECE_BYTES = 64 * 1024


@app.command(rich_help_panel=WORK)
def cp(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="Source: NAME:PATH in a task, a local path, or - for tar on standard input."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="Target: a local path, - for tar on standard output, or NAME:PATH in a task."
        ),
    ],
    container: ContainerOption = None,
    index: TaskOption = None,
    server: ServerOption = None,
) -> None:
    """Copy files from or to a task: `mooring cp web:/srv/data .`, `mooring cp notes.txt web:/srv`.

    Files keep their names in the target folder. A path of - is a tar archive on standard input or output.
    """
    from mooring.cli.connection import connect

    far, near = _remote_path(source), _remote_path(target)
    if (far is None) == (near is None):
        raise InvalidInput("one path must be NAME:PATH in a task, the other a path on this machine")
    with connect(server) as client:
        if far is not None:
            name, path = far
            task = first_task(client.workload(name), index)
            unpack(client.fetch_files(str(task.id), path, container=container), path, target)
        elif near is not None:
            name, path = near
            task = first_task(client.workload(name), index)
            client.store_files(str(task.id), path, _packed(source), container=container)


def _remote_path(written: str) -> tuple[str, str] | None:
    """Return the workload and the path in it, or None for a path on this machine."""
    name, colon, path = written.partition(":")
    if not colon or not name or "/" in name or written == STANDARD:
        return None
    return name, path or "."


def _packed(source: str) -> Iterable[bytes]:
    """Yield a tar archive of a local file or folder as it is built, or standard input unchanged."""
    if source == STANDARD:
        yield from iter(lambda: sys.stdin.buffer.read(_PIECE_BYTES), b"")
        return
    path = Path(source)
    if not path.exists():
        raise InvalidInput(f"{source!r} does not exist on this machine")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as packed:
        Thread(target=_pack, args=(path, os.fdopen(writing, "wb")), daemon=True).start()
        yield from iter(lambda: packed.read(_PIECE_BYTES), b"")


def _pack(path: Path, out: BinaryIO) -> None:
    try:
        with out, tarfile.open(fileobj=out, mode="w|") as archive:
            archive.add(path, arcname=path.resolve().name)
    except OSError:  # the receiver has closed the pipe
        return
