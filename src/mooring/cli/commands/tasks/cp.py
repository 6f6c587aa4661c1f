"""`mooring cp`: files between a task and this machine."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from mooring.cli.help import App
from mooring.cli.input.options import (
    WORK,
    ContainerOption,
    ServerOption,
    TaskOption,
)
from mooring.compat.tarfile_filters import tarfile
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from mooring.wire.workloads.tasks import TaskView
    from mooring.wire.workloads.workloads import WorkloadDetail

app = App()

_PIECE_BYTES = 64 * 1024
_STANDARD = "-"


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
    if not colon or not name or "/" in name or written == _STANDARD:
        return None
    return name, path or "."


def first_task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """Return a running task, otherwise the newest attempt that had a node, whose files may still be there."""
    found = [task for task in detail.tasks if task.node is not None and (index is None or task.index == index)]
    if not found:
        raise InvalidInput(f"no such task of {detail.name!r} has been on a node yet", code="not-running")
    return min(found, key=lambda task: (task.status != TaskStatus.RUNNING, task.index, -task.attempt))


def unpack(pieces: Iterator[bytes], path: str, target: str) -> None:
    """Write the archive of a path in a task to a folder of this machine, or to standard output."""
    from mooring.cli.interaction.unpacking import unpack_archive

    if target == _STANDARD:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    folder = Path(target)
    if not folder.is_dir():
        raise InvalidInput(
            f"{target!r} is not a folder on this machine; create it first, or copy to an existing folder"
        )
    last = path.rstrip("/").rpartition("/")[2]
    # The archive of a whole working directory, or of the content of a folder, has names that only the node knows.
    unpack_archive(io.BufferedReader(_Pieces(pieces)), folder, name=last if last not in ("", ".") else None)


class _Pieces(io.RawIOBase):
    """A file object over received chunks, for tar to read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        while not self._rest and (piece := next(self._pieces, None)) is not None:
            self._rest = piece
        data, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(data)] = data
        return len(data)


def _packed(source: str) -> Iterable[bytes]:
    """Yield a tar archive of a local file or folder as it is built, or standard input unchanged."""
    if source == _STANDARD:
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
