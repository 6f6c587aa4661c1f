"""Follow the output of all tasks of a workload, each line prefixed with the task's name."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from mooring.cli.exits import say
from mooring.cli.interaction.follow_output import is_living
from mooring.cli.interaction.waiting import PAUSE_SECONDS, has_ended
from mooring.client.operations.core import LONG_POLL_SECONDS
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.model.workloads.output import OutputPosition
from mooring.wire.workloads.tasks import TaskView
from mooring.wire.workloads.workloads import WorkloadDetail

if TYPE_CHECKING:
    from mooring.client import AsyncClient

_COLOURS = (36, 33, 32, 35, 34, 31)
_MAX_LINE_LENGTH = 64 * 1024
_AGAIN_SECONDS = 1.0

Clean = Callable[[Iterable[bytes]], Iterator[bytes]]


async def follow_all(
    server: str | None,
    detail: WorkloadDetail,
    *,
    tail: int | None,
    container: str | None,
    clean: Clean,
    follow: bool = True,
) -> None:
    """Follow the tasks until the workload has ended, or show what they have written so far.

    `clean` escapes output for this terminal.
    """
    from mooring.cli.connection import connect_async

    following: dict[UUID, asyncio.Task[None]] = {}
    async with connect_async(server) as client:
        try:
            while True:
                for task in detail.tasks:
                    if task.started_at is not None and task.id not in following and (task.current or not following):
                        copying = _copy(client, detail, task, tail, container, clean, follow)
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


async def _copy(
    client: AsyncClient,
    detail: WorkloadDetail,
    task: TaskView,
    tail: int | None,
    container: str | None,
    clean: Clean,
    follow: bool,
) -> None:
    """Write a task's output line by line, each line once, however often the stream is reopened."""
    who, written = f"{detail.name}/{task.index}", OutputPosition()
    while True:
        logs = partial(client.logs, str(detail.id), task=task.index, attempt=task.attempt, container=container)
        try:
            skip: int | None = 0
            if written.count:
                stored = b"".join([piece async for piece in logs()])
                skip = written.found_in(stored, from_start=tail is None)
                if skip is None:
                    say(f"{who}: a part of the output is no longer stored")
            rest = b""
            async for line, end in _lines(_after(skip or 0, logs(tail=None if written.count else tail, follow=follow))):
                if end is None:
                    rest = line
                else:
                    _show(detail.name, task.index, line, clean)
                    written = written.after(line + end)
            if not follow or await _has_left(client, detail, task):
                if rest:
                    _show(detail.name, task.index, rest, clean)
                return
        except (NotFound, Conflict) as problem:
            say(f"{who}: {problem.message}")
            return
        except Unavailable as problem:
            say(f"{who}: the output was interrupted ({problem.message}); retrying")
        await asyncio.sleep(_AGAIN_SECONDS)


async def _has_left(client: AsyncClient, detail: WorkloadDetail, task: TaskView) -> bool:
    """Return whether the task has ended, so that its output is complete; else the server closed the stream."""
    if detail.simulated:
        return True
    found = await client.workload(str(detail.id))
    return has_ended(found) or not is_living(found, task)


async def _after(skip: int, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if skip >= len(piece):
            skip -= len(piece)
        else:
            yield piece[skip:]
            skip = 0


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


def _show(name: str, index: int, line: bytes, clean: Clean) -> None:
    prefix = f"{name}/{index} | "
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        prefix = f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{prefix}\x1b[0m"
    sys.stdout.buffer.write(prefix.encode() + b"".join(clean([line])) + b"\n")
    sys.stdout.buffer.flush()
