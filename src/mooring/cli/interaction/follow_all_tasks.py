"""The output of all tasks of a workload at once, each line after the task's name; those that start later join."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from mooring.cli.exits import say
from mooring.cli.waiting import PAUSE_SECONDS, has_ended
from mooring.client.operations import LONG_POLL_SECONDS
from mooring.model.errors import Conflict, NotFound, Unavailable
from mooring.wire.api import TaskView, WorkloadDetail

if TYPE_CHECKING:
    from mooring.client import AsyncClient

_COLOURS = (36, 33, 32, 35, 34, 31)
_LONGEST_LINE = 64 * 1024
_AGAIN_SECONDS = 1.0

Clean = Callable[[Iterable[bytes]], Iterator[bytes]]


async def follow_all(
    server: str | None, detail: WorkloadDetail, *, tail: int | None, container: str | None, clean: Clean
) -> None:
    """Until the workload has ended; `clean` makes output fit for this terminal."""
    from mooring.cli.connection import connect_async

    following: dict[UUID, asyncio.Task[None]] = {}
    async with connect_async(server) as client:
        try:
            while True:
                for task in detail.tasks:
                    if task.started_at is not None and task.id not in following and (task.current or not following):
                        copying = _copy(client, detail, task, tail, container, clean)
                        following[task.id] = asyncio.create_task(copying)
                if has_ended(detail):
                    await asyncio.gather(*following.values())
                    return
                detail = await _next(client, detail)
        finally:
            for copying_task in following.values():
                copying_task.cancel()
            await asyncio.gather(*following.values(), return_exceptions=True)


async def _next(client: AsyncClient, seen: WorkloadDetail) -> WorkloadDetail:
    """The workload when it has changed, through short outages of the server."""
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
) -> None:
    """Everything that a task says, line by line; after a break from where it is then."""
    while True:
        pieces = client.logs(
            str(detail.id), task=task.index, attempt=task.attempt, tail=tail, follow=True, container=container
        )
        try:
            async for line in _lines(pieces):
                _show(detail.name, task.index, line, clean)
            return
        except (NotFound, Conflict) as problem:
            say(f"{detail.name}/{task.index}: {problem.message}")
            return
        except Unavailable as problem:
            say(f"{detail.name}/{task.index}: the output is interrupted ({problem.message}); trying again")
            tail = 0
            await asyncio.sleep(_AGAIN_SECONDS)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _LONGEST_LINE:
            yield rest
            rest = b""
    if rest:
        yield rest


def _show(name: str, index: int, line: bytes, clean: Clean) -> None:
    prefix = f"{name}/{index} | "
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        prefix = f"\x1b[{_COLOURS[index % len(_COLOURS)]}m{prefix}\x1b[0m"
    sys.stdout.buffer.write(prefix.encode() + b"".join(clean([line])) + b"\n")
    sys.stdout.buffer.flush()
