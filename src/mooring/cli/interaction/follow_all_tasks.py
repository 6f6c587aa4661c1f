"""Follow the output of all tasks of a workload, each line prefixed with the task's name."""

from __future__ import annotations

import asyncio
import heapq
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from mooring.cli.exits import say
from mooring.cli.interaction.follow_output import is_living
from mooring.cli.interaction.waiting import PAUSE_SECONDS, has_ended
from mooring.client.operations.core import LONG_POLL_SECONDS
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.model.workloads.output import CUT_OFF, OutputPosition
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadDetail

if TYPE_CHECKING:
    from mooring.client import AsyncClient

_COLOURS = (36, 33, 32, 35, 34, 31)
_MAX_LINE_LENGTH = 64 * 1024
_AGAIN_SECONDS = 1.0
_NO_TIMES = ("agent-outdated", "no-times", "server-outdated")
"""Codes of answers that output has no times."""

Clean = Callable[[Iterable[bytes]], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of each task to show."""

    tail: int | None = None
    container: str | None = None
    since: datetime | None = None
    timestamps: bool = False


async def follow_all(
    server: str | None, detail: WorkloadDetail, *, lines: Lines, clean: Clean, follow: bool = True
) -> None:
    """Follow the tasks until the workload has ended, or show what they have written so far in the order of its times.

    `clean` escapes output for this terminal.
    """
    from mooring.cli.connection import connect_async

    following: dict[UUID, asyncio.Task[None]] = {}
    async with connect_async(server) as client:
        if not follow and await _show_by_time(client, detail, lines, clean):
            return
        try:
            while True:
                for task in detail.tasks:
                    if task.started_at is not None and task.id not in following and (task.current or not following):
                        copying = _copy(client, detail, task, lines, clean, follow)
                        following[task.id] = asyncio.create_task(copying)
                if has_ended(detail) or not follow:
                    await asyncio.gather(*following.values())
                    return
                detail = await _next(client, detail)
        finally:
            for copying_task in following.values():
                copying_task.cancel()
            await asyncio.gather(*following.values(), return_exceptions=True)


async def _next(client: AsyncClient, seen: WorkloadDetail) -> WorkloadDetail:
    """Return the workload when it has changed, through short outages of the server."""
    try:
        found = await client.wait(str(seen.id), "changed", version=seen.version, timeout_seconds=LONG_POLL_SECONDS)
    except Unavailable:
        await asyncio.sleep(_AGAIN_SECONDS)
        return seen
    if found.version == seen.version:
        await asyncio.sleep(PAUSE_SECONDS)
    return found


async def _show_by_time(client: AsyncClient, detail: WorkloadDetail, lines: Lines, clean: Clean) -> bool:
    """Show the output of all tasks by the times of their lines. Return False if times are not known and not wanted."""
    tasks = [task for task in detail.tasks if task.started_at is not None and task.current]
    if detail.simulated:
        return False
    sources = [_timed(client, detail, task, lines) for task in tasks]
    heads = await asyncio.gather(*(anext(source, None) for source in sources), return_exceptions=True)
    problem = next((head for head in heads if isinstance(head, BaseException)), None)
    if problem is not None:
        for source in sources:
            await source.aclose()
        if not isinstance(problem, Conflict) or lines.timestamps or lines.since is not None:
            raise problem
        return False
    heap = [(head.stamp, number, head) for number, head in enumerate(heads) if isinstance(head, _TimedLine)]
    heapq.heapify(heap)
    while heap:
        _, number, head = heap[0]
        stamp = head.stamp if lines.timestamps else b""
        _show(detail.name, tasks[number].index, head.text, clean, stamp)
        following = await anext(sources[number], None)
        if following is None:
            heapq.heappop(heap)
        else:
            # A line without a time, or of a clock that was set back, stays behind the one before it.
            stamp = max(following.stamp, heap[0][0])
            heapq.heapreplace(heap, (stamp, number, following))
    return True


class _TimedLine(NamedTuple):
    stamp: bytes
    text: bytes


async def _timed(
    client: AsyncClient, detail: WorkloadDetail, task: TaskView, lines: Lines
) -> AsyncGenerator[_TimedLine, None]:
    """Yield the lines of a task with their times."""
    asked: dict[str, Any] = {"tail": lines.tail, "since": lines.since, "container": lines.container, "timestamps": True}
    pieces = client.logs(str(detail.id), task=task.index, attempt=task.attempt, **asked)
    try:
        continues = False
        async for line, end in _lines(_unless_cut_off(pieces)):
            yield _TimedLine(*((b"", line) if continues else _split_time(line)))
            continues = end == b""
    except (NotFound, Unavailable) as problem:
        say(f"{detail.name}/{task.index}: {problem.message}")
    except Conflict as problem:
        if problem.code in _NO_TIMES:
            raise
        say(f"{detail.name}/{task.index}: {problem.message}")


async def _unless_cut_off(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if piece.startswith(CUT_OFF):
            raise Unavailable(piece.removeprefix(CUT_OFF).decode("utf-8", "replace").strip())
        yield piece


async def _copy(
    client: AsyncClient, detail: WorkloadDetail, task: TaskView, chosen: Lines, clean: Clean, follow: bool
) -> None:
    """Write a task's output line by line, each line once, however often the stream is reopened."""
    who, written = f"{detail.name}/{task.index}", OutputPosition()
    whole = chosen.tail is None and chosen.since is None
    while True:
        logs = partial(client.logs, str(detail.id), task=task.index, attempt=task.attempt, container=chosen.container)
        try:
            skip: int | None = 0
            if written.count:
                stored = b"".join([piece async for piece in logs()])
                skip = written.found_in(stored, from_start=whole)
                if skip is None:
                    say(f"{who}: a part of the output is no longer stored")
            rest: tuple[bytes, bytes] | None = None
            first: dict[str, Any] = {} if written.count else {"tail": chosen.tail, "since": chosen.since}
            pieces = logs(follow=follow, timestamps=chosen.timestamps, **first)
            continues = False
            async for line, end in _lines(pieces):
                stamp, text = _split_time(line) if chosen.timestamps and not continues else (b"", line)
                continues = end == b""
                if (skip or 0) >= len(text) + len(end or b"") > 0:
                    skip = (skip or 0) - len(text) - len(end or b"")
                elif end is None:
                    rest = stamp, text
                else:
                    _show(detail.name, task.index, text[skip or 0 :], clean, stamp)
                    skip, written = 0, written.after(text + end)
            if not follow or await _has_left(client, detail, task):
                if rest:
                    _show(detail.name, task.index, rest[1], clean, rest[0])
                return
        except (NotFound, Conflict) as problem:
            say(f"{who}: {problem.message}")
            return
        except Unavailable as problem:
            say(f"{who}: the output was interrupted ({problem.message}); retrying")
        await asyncio.sleep(_AGAIN_SECONDS)


def _split_time(line: bytes) -> tuple[bytes, bytes]:
    """Return the time of a line, with the space after it, and the line."""
    stamp, space, text = line.partition(b" ")
    return stamp + space, text


async def _has_left(client: AsyncClient, detail: WorkloadDetail, task: TaskView) -> bool:
    """Return whether the task has ended, so that its output is complete; else the server closed the stream."""
    if detail.simulated:
        return True
    found = await client.workload(str(detail.id))
    return has_ended(found) or not is_living(found, task)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Yield each line and its end, which is empty within a very long one; None for a last line that has no end."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line, b"\n"
        if len(rest) > _MAX_LINE_LENGTH:
            yield rest, b""
            rest = b""
    if rest:
        yield rest, None


def _show(name: str, index: int, line: bytes, clean: Clean, stamp: bytes = b"") -> None:
    prefix = f"{name}/{index} | "
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        prefix = f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{prefix}\x1b[0m"
    sys.stdout.buffer.write(prefix.encode() + stamp + b"".join(clean([line])) + b"\n")
    sys.stdout.buffer.flush()
