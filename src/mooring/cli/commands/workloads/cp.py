"""`mooring cp`: files between a task and this machine."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from mooring.cli.options import WORK, ContainerOption, ServerOption, TaskOption
from mooring.model.errors import InvalidInput, MooringError
from mooring.model.lifecycle import TaskStatus

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from mooring.wire.api import TaskView, WorkloadDetail

app = typer.Typer()

_PIECE_BYTES = 64 * 1024
_STANDARD = "-"


@app.command(rich_help_panel=WORK)
def cp(
    source: Annotated[str, typer.Argument(metavar="FROM", help="NAME:PATH of a task, a local path, or - for tar.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A local path or -, or NAME:PATH of a task.")],
    container: ContainerOption = None,
    index: TaskOption = None,
    server: ServerOption = None,
) -> None:
    """Copy files out of a task or into one: `mooring cp web:/srv/data .`, `mooring cp notes.txt web:/srv`.

    What is copied keeps its name in the folder that it is copied to. With - it is a tar archive on standard input or
    output.
    """
    from mooring.cli.connection import connect

    far, near = _place(source), _place(target)
    if (far is None) == (near is None):
        raise InvalidInput("one of the two is NAME:PATH in a task, the other is on this machine")
    with connect(server) as client:
        if far is not None:
            name, path = far
            task = _task(client.workload(name), index)
            _unpack(client.fetch_files(str(task.id), path, container=container), target)
        elif near is not None:
            name, path = near
            task = _task(client.workload(name), index)
            client.store_files(str(task.id), path, _packed(source), container=container)


def _place(written: str) -> tuple[str, str] | None:
    """The workload and the path in it; None for what is on this machine."""
    name, colon, path = written.partition(":")
    if not colon or not name or "/" in name or written == _STANDARD:
        return None
    return name, path or "."


def _task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """One that runs, else the newest attempt that had a node: what it left may be wanted."""
    found = [task for task in detail.tasks if task.node is not None and (index is None or task.index == index)]
    if not found:
        raise InvalidInput(f"no such task of {detail.name!r} was on a node yet", code="not-running")
    return min(found, key=lambda task: (task.status != TaskStatus.RUNNING, task.index, -task.attempt))


def _unpack(pieces: Iterator[bytes], target: str) -> None:
    if target == _STANDARD:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    folder = Path(target)
    if not folder.is_dir():
        raise InvalidInput(f"{target!r} is no folder here; make it first, or copy to one that is there")
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Pieces(pieces)), mode="r|") as archive:
            # What a task wrote is not trusted: nothing leaves the folder, and nothing becomes a device.
            archive.extractall(folder, filter="data")
    except tarfile.TarError as problem:
        raise MooringError(f"the files cannot be unpacked: {problem}", code="files-refused") from problem


class _Pieces(io.RawIOBase):
    """Pieces as a file that tar reads from."""

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
    """A local file or folder as tar, made while it is sent; or what comes on standard input."""
    if source == _STANDARD:
        yield from iter(lambda: sys.stdin.buffer.read(_PIECE_BYTES), b"")
        return
    path = Path(source)
    if not path.exists():
        raise InvalidInput(f"there is no {source!r} here")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as packed:
        Thread(target=_pack, args=(path, os.fdopen(writing, "wb")), daemon=True).start()
        yield from iter(lambda: packed.read(_PIECE_BYTES), b"")


def _pack(path: Path, out: BinaryIO) -> None:
    try:
        with out, tarfile.open(fileobj=out, mode="w|") as archive:
            archive.add(path, arcname=path.resolve().name)
    except OSError:  # the other end has gone
        return
