"""Output of containers: continued after a restart, and saved before they are removed from the engine."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import structlog

from mooring.agent.access.logs import CHUNK, Line, stamp
from mooring.agent.options import Options
from mooring.agent.runtimes.container.engine import Engine, EngineRefused, EngineTransient
from mooring.agent.runtimes.process.supervisor.output import TIMES, RotatedFile
from mooring.model.workloads.output import OutputPosition

log = structlog.get_logger(__name__)

_APART_SECONDS = 0.1


class LineTimes(NamedTuple):
    """The times of a container's lines by their numbers, to 0.1 s."""

    first_lines: list[int]
    at: list[float]
    total: int
    """The number of lines, including an unfinished one."""

    def of(self, line: int) -> float | None:
        found = bisect_right(self.first_lines, line) - 1
        return self.at[found] if found >= 0 else None


async def line_times(engine: Engine, name: str, *, terminal: bool) -> LineTimes:
    """Return the times of the stored lines. Only their first word is used: engines also mark parts within a line."""
    found, rest = LineTimes([], [], 0), b""
    number = 0

    def note(line: bytes) -> None:
        at = _time_of(line)
        if at is not None and (not found.at or not 0 <= at - found.at[-1] < _APART_SECONDS):
            found.first_lines.append(number)
            found.at.append(at)

    async for data in engine.output(name, terminal=terminal, tail=None, follow=False, timestamps=True):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            note(line)
            number += 1
    if rest:
        note(rest)
        number += 1
    return found._replace(total=number)


def _time_of(line: bytes) -> float | None:
    """Return the time that an engine has written before a line; None if there is none."""
    # Nanoseconds are more than Python reads.
    moment = re.sub(rb"(\.\d{6})\d+", rb"\1", line.partition(b" ")[0])
    try:
        return datetime.fromisoformat(moment.decode("ascii")).timestamp()
    except ValueError:
        return None


async def timed_output(
    engine: Engine, name: str, *, terminal: bool, tail: int | None, follow: bool, since: float | None = None
) -> AsyncIterator[Line]:
    """Yield the output of a container by lines, each with its time; that of new output is the time of its arrival."""
    times = await line_times(engine, name, terminal=terminal)
    first = 0 if tail is None else max(times.total - tail, 0)
    number, begins, at = 0, True, None
    async for data in engine.output(name, terminal=terminal, tail=None, follow=follow):
        for part in _lines(data):
            if begins:
                at = times.of(number) if number < times.total else time.time()
            if number >= first and (since is None or (at is not None and at >= since)):
                yield Line(stamp(at) if begins else b"", part)
            begins = part.endswith(b"\n")
            number += begins


async def save_output(engine: Engine, name: str, path: Path, options: Options, *, terminal: bool) -> None:
    """Save the output and its times to files at this path, replacing existing ones."""
    for number in range(options.log_files):
        for suffix in ("", TIMES):
            path.with_name(f"{path.name}{f'.{number}' if number else ''}{suffix}").unlink(missing_ok=True)
    file = RotatedFile(str(path), options.log_bytes, options.log_files)
    writer = _TimedWriter(file)
    try:
        try:
            writer.times = await line_times(engine, name, terminal=terminal)
            async for data in engine.output(name, terminal=terminal, tail=None, follow=False):
                await writer.write(data)
        except EngineTransient:
            raise
        except EngineRefused as refusal:
            log.warning("output of a container is lost", container=name, reason=refusal.message)
        await writer.flush()
    finally:
        file.close()


class _TimedWriter:
    """Writes output in large pieces, which end where the time changes."""

    def __init__(self, file: RotatedFile) -> None:
        self.times = LineTimes([], [], 0)
        self._file = file
        self._line = 0
        self._at: float | None = None
        self._waiting = bytearray()
        self._begins = True

    async def write(self, data: bytes) -> None:
        for line in _lines(data):
            if self._begins and (at := self.times.of(self._line)) != self._at:
                await self.flush()
                self._at = at
            self._waiting += line
            self._begins = line.endswith(b"\n")
            self._line += self._begins
            if len(self._waiting) > CHUNK:
                await self.flush()

    async def flush(self) -> None:
        if self._waiting:
            await asyncio.to_thread(self._file.write, bytes(self._waiting), self._at)
            self._waiting.clear()


def _lines(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


async def unread_output(
    engine: Engine, name: str, position: OutputPosition, *, terminal: bool, from_start: bool
) -> AsyncIterator[Line]:
    """Yield the output after this position until the container ends; all of it if the position is no longer stored."""
    stored = b"".join([data async for data in engine.output(name, terminal=terminal, tail=None, follow=False)])
    skip = position.found_in(stored, from_start=from_start) or 0
    async for data in engine.output(name, terminal=terminal, tail=None, follow=True):
        if skip >= len(data):
            skip -= len(data)
        else:
            yield Line(b"", data[skip:])
            skip = 0


async def unread_lines(
    engine: Engine, name: str, position: OutputPosition, *, terminal: bool, from_start: bool
) -> AsyncIterator[Line]:
    """As `unread_output`, by lines with their times."""
    stored = b"".join([data async for data in engine.output(name, terminal=terminal, tail=None, follow=False)])
    skip = position.found_in(stored, from_start=from_start) or 0
    async for line in timed_output(engine, name, terminal=terminal, tail=None, follow=True):
        for left in after(skip, [line]):
            yield left
        skip = max(skip - len(line.data), 0)


def after(skip: int, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines after this many bytes of output; a line that begins before them has no time."""
    for line in lines:
        if skip < len(line.data):
            yield Line(b"", line.data[skip:]) if skip else line
        skip = max(skip - len(line.data), 0)


async def untimed(pieces: AsyncIterator[bytes]) -> AsyncIterator[Line]:
    async for data in pieces:
        yield Line(b"", data)
