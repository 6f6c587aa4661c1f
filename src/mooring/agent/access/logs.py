"""Output of a task: the last lines from the rotated files, then new output while following."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO

CHUNK = 48 * 1024
"""Small enough that a chunk stays within 64 KiB as base64."""
_POLL_SECONDS = 0.2


async def read_log(
    path: Path, count: int, *, tail: int | None, follow: bool, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the last `tail` lines (None: all stored); with `follow`, then new output until the task has ended."""
    reader = await asyncio.to_thread(LogReader, path, count, tail)
    try:
        while True:
            last_read = not follow or ended()
            while data := await asyncio.to_thread(reader.read, CHUNK):
                yield data
            if last_read:
                return
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        reader.close()


class LogReader:
    """Reader of `path.2`, `path.1`, `path` as one stream, even while they are rotated."""

    def __init__(self, path: Path, count: int, tail: int | None = None) -> None:
        self._oldest_first = [path.with_name(f"{path.name}.{number}") for number in range(count - 1, 0, -1)] + [path]
        self._file: BinaryIO | None = None
        if tail is None:
            self._file = self._open(self._present()[:1])
        else:
            self._seek(tail)

    def read(self, limit: int) -> bytes:
        """Return the next bytes; empty if there are none yet."""
        while True:
            if self._file is None:
                self._file = self._open(self._present()[:1])
                if self._file is None:
                    return b""
            if data := self._file.read(limit):
                return data
            newer = self._newer()
            if not newer:
                return b""
            # The file was rotated after the last read; bytes added in between come first.
            if data := self._file.read(limit):
                return data
            following = self._open(newer[:1])
            if following is None:
                continue
            self._file.close()
            self._file = following

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _seek(self, tail: int) -> None:
        """Open the file in which the last `tail` lines begin, at their first byte."""
        # The newline at the end of the last line does not start another.
        wanted = tail + 1
        for number, path in enumerate(reversed(self._present())):
            file = self._open([path])
            if file is None:
                continue
            self.close()
            self._file = file
            end = file.seek(0, os.SEEK_END)
            if number == 0 and end > 0:
                file.seek(end - 1)
                if file.read(1) != b"\n":
                    wanted -= 1
            position, wanted = _nth_newline_from_end(file, end, wanted)
            file.seek(position)
            if wanted == 0:
                return

    def _present(self) -> list[Path]:
        return [path for path in self._oldest_first if path.exists()]

    def _newer(self) -> list[Path]:
        """Return the files after the open one, oldest first; all of them if it has been rotated away."""
        assert self._file is not None
        while True:
            own = os.fstat(self._file.fileno())
            present = self._present()
            for position, path in enumerate(present):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_ino == own.st_ino:
                        return present[position + 1 :]
            if own.st_nlink == 0:
                return present
            # It still has a name, so it was renamed during the lookup: look again.

    def _open(self, paths: list[Path]) -> BinaryIO | None:
        try:
            return paths[0].open("rb", buffering=0) if paths else None
        except FileNotFoundError:
            return None


def _nth_newline_from_end(file: BinaryIO, end: int, wanted: int) -> tuple[int, int]:
    """Return the position after the wanted newline, counted from the end, or 0 and the number still wanted."""
    if wanted == 0:
        return end, 0
    position = end
    while position > 0:
        begin = max(position - CHUNK, 0)
        file.seek(begin)
        block = file.read(position - begin)
        newline = len(block)
        while (newline := block.rfind(b"\n", 0, newline)) >= 0:
            wanted -= 1
            if wanted == 0:
                return begin + newline + 1, 0
        position = begin
    return 0, wanted
