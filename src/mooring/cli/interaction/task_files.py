"""Files that come from a task: the task that has them, and their archive on this machine."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.cli.interaction.unpacking import unpack_archive
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from mooring.wire.workloads.tasks import TaskView
    from mooring.wire.workloads.workloads import WorkloadDetail

STANDARD = "-"
"""The path that stands for standard input or output."""


def first_task(detail: WorkloadDetail, index: int | None) -> TaskView:
    """Return a running task, otherwise the newest attempt that had a node, whose files may still be there."""
    found = [task for task in detail.tasks if task.node is not None and (index is None or task.index == index)]
    if not found:
        raise InvalidInput(f"no such task of {detail.name!r} has been on a node yet", code="not-running")
    return min(found, key=lambda task: (task.status != TaskStatus.RUNNING, task.index, -task.attempt))


def unpack(pieces: Iterator[bytes], path: str, target: str) -> None:
    """Write the archive of a path in a task to a folder of this machine, or to standard output."""
    if target == STANDARD:
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
