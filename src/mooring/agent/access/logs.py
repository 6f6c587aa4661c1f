"""Output of a task: the last lines from the rotated files, then new output while following, with times on request."""

from __future__ import annotations

import asyncio
import contextlib
import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mooring.agent.runtimes.process.supervisor.output import ENTRY_BYTES, TIMES
from mooring.model.errors import Conflict

CHUNK = 48 * 1024
"""Small enough that a chunk stays within 64 KiB as base64."""
_POLL_SECONDS = 0.2


class LogSelection(NamedTuple):
    """The part of a container's output that is asked for."""

    tail: int | None = None
    """Number of last lines; None: all that are stored."""
    follow: bool = False
    """Go on until the task has ended."""
    since: float | None = None
    """Only lines that arrived from this time on, in seconds since 1970."""
    timestamps: bool = False
    """Each line begins with the time at which it arrived."""


class Line(NamedTuple):
    """A line of output, or a part of one."""

    stamp: bytes
    """The time of its first byte; empty if it continues a line."""
    data: bytes


async def read_log(
    path: Path,
    count: int,
    *,
    tail: int | None,
    follow: bool,
    ended: Callable[[], bool],
    since: float | None = None,
    timestamps: bool = False,
) -> AsyncIterator[bytes]:
    """Yield the last `tail` lines (None: all stored); with `follow`, then new output until the task has ended.

    `since`: only lines that arrived from then on. `timestamps`: each line begins with its time.
    """
    if timestamps:
        lines = read_lines(path, count, tail=tail, follow=follow, ended=ended, since=since)
        async for portion in lines:
            for piece in joined(portion):
                yield piece
        return
    reader = await asyncio.to_thread(LogReader, path, count, tail, since)
    try:
        if since is not None and not reader.has_times:
            raise without_times()
        async for data in _pieces(reader, follow, ended):
            yield data
    finally:
        reader.close()


async def read_lines(
    path: Path, count: int, *, tail: int | None, follow: bool, ended: Callable[[], bool], since: float | None = None
) -> AsyncIterator[list[Line]]:
    """Yield the output by lines with their times; Conflict if it has none."""
    reader = await asyncio.to_thread(LogReader, path, count, tail, since)
    try:
        if not reader.has_times:
            raise without_times()
        marker = LineMarker()
        async for data in _pieces(reader, follow, ended):
            yield marker.lines(data, reader.times, reader.offset - len(data))
    finally:
        reader.close()


async def _pieces(reader: LogReader, follow: bool, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    while True:
        last_read = not follow or ended()
        while data := await asyncio.to_thread(reader.read, CHUNK):
            yield data
        if last_read:
            return
        await asyncio.sleep(_POLL_SECONDS)


def without_times() -> Conflict:
    return Conflict(
        "an older agent recorded this output, without times: leave out --since and --timestamps", code="no-times"
    )


class LineMarker:
    """Divides output that arrives in pieces into lines, and marks each with the time of its first byte."""

    def __init__(self) -> None:
        self._begins = True

    def lines(self, data: bytes, times: LogTimes | None, offset: int) -> list[Line]:
        """Return the lines of a piece that begins at this offset of its file."""
        found: list[Line] = []
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            at = times.at(offset + start) if times is not None and self._begins else None
            found.append(Line(stamp(at) if self._begins else b"", data[start:end]))
            self._begins = data[end - 1 : end] == b"\n"
            start = end
        return found


def stamp(at: float | None) -> bytes:
    """Return `2026-05-01T12:00:00.250Z ` for a time; `- ` if it is not known."""
    if at is None:
        return b"- "
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3].encode() + b"Z "


def joined(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield the lines with their times, in pieces that fit into a chunk."""
    waiting = bytearray()
    for line in lines:
        waiting += line.stamp + line.data
        while len(waiting) >= CHUNK:
            yield bytes(waiting[:CHUNK])
            del waiting[:CHUNK]
    if waiting:
        yield bytes(waiting)


class LogTimes:
    """The times at which the bytes of a log file arrived."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offsets: list[int] = []
        self._at: list[float] = []

    @classmethod
    def of(cls, log: BinaryIO, candidates: Iterable[Path]) -> LogTimes | None:
        """Return the times of an open log file, which may be renamed meanwhile; None if there are none."""
        inode = os.fstat(log.fileno()).st_ino
        for path in candidates:
            with contextlib.suppress(OSError):
                file = path.open("rb", buffering=0)
                if _entry(file.read(ENTRY_BYTES))[0] == inode:
                    return cls(file)
                file.close()
        return None

    def at(self, offset: int) -> float | None:
        found = bisect_right(self._offsets, offset) - 1
        return self._at[found] if found >= 0 else None

    def first_since(self, since: float) -> int | None:
        """Return the offset of the first byte that arrived at this time or later."""
        return next((offset for offset, at in zip(self._offsets, self._at, strict=True) if at >= since), None)

    def refresh(self) -> None:
        """Read the entries that were added."""
        data = self._file.read()
        whole = len(data) - len(data) % ENTRY_BYTES
        self._file.seek(whole - len(data), os.SEEK_CUR)
        for start in range(0, whole, ENTRY_BYTES):
            offset, nanoseconds = _entry(data[start : start + ENTRY_BYTES])
            self._offsets.append(offset)
            self._at.append(nanoseconds / 1e9)

    def close(self) -> None:
        self._file.close()


def _entry(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


class LogReader:
    """Reader of `path.2`, `path.1`, `path` as one stream, even while they are rotated."""

    def __init__(self, path: Path, count: int, tail: int | None = None, since: float | None = None) -> None:
        self._oldest_first = [path.with_name(f"{path.name}.{number}") for number in range(count - 1, 0, -1)] + [path]
        self._file: BinaryIO | None = None
        self._times: tuple[int, LogTimes] | None = None
        if tail is None:
            self._file = self._open(self._present()[:1])
        else:
            self._seek(tail)
        if since is not None:
            self._seek_since(since)

    @property
    def offset(self) -> int:
        """The position in the open file."""
        return 0 if self._file is None else self._file.tell()

    @property
    def times(self) -> LogTimes | None:
        """The times of the open file, up to date; None if it has none."""
        if self._file is None:
            return None
        inode = os.fstat(self._file.fileno()).st_ino
        if self._times is None or self._times[0] != inode:
            self._close_times()
            found = self._times_of(self._file)
            self._times = None if found is None else (inode, found)
        if self._times is None:
            return None
        self._times[1].refresh()
        return self._times[1]

    @property
    def has_times(self) -> bool:
        """Return whether any file has times; true while there is no output."""
        present = self._present()
        return not present or any(path.with_name(path.name + TIMES).exists() for path in present)

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
        self._close_times()

    def _close_times(self) -> None:
        if self._times is not None:
            self._times[1].close()
            self._times = None

    def _times_of(self, file: BinaryIO) -> LogTimes | None:
        return LogTimes.of(file, (path.with_name(path.name + TIMES) for path in reversed(self._oldest_first)))

    def _seek_since(self, since: float) -> None:
        """Move to the first line from this time on, unless the reader is beyond it; to the end if there is none."""
        begun, least = (None, 0) if self._file is None else (os.fstat(self._file.fileno()).st_ino, self.offset)
        files = [file for path in self._present() if (file := self._open([path])) is not None]
        inodes = [os.fstat(file.fileno()).st_ino for file in files]
        first = inodes.index(begun) if begun in inodes else 0
        chosen = None
        for file in files[first:]:
            chosen, offset = file, self._first_since(file, since)
            file.seek(0, os.SEEK_END)
            if offset is not None:
                start = _line_start(file, offset)
                file.seek(max(start, least) if file is files[first] else start)
                break
        for file in files:
            if file is not chosen:
                file.close()
        if self._file is not None:
            self._file.close()
        self._file = chosen

    def _first_since(self, file: BinaryIO, since: float) -> int | None:
        times = self._times_of(file)
        if times is None:
            return None
        times.refresh()
        times.close()
        return times.first_since(since)

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


def _line_start(file: BinaryIO, offset: int) -> int:
    """Return the position of the first line that begins at the offset or after it; the end if there is none."""
    if offset == 0:
        return 0
    position = offset - 1
    file.seek(position)
    while block := file.read(CHUNK):
        newline = block.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(block)
    return position
