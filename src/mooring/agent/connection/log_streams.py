"""The outputs that the server is reading right now: opened, sent as fast as it reads, called off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from uuid import UUID

from mooring.agent.runtime import Runtime
from mooring.agent.stream import Connection
from mooring.model.errors import MooringError, NotFound, Unavailable
from mooring.wire.agent import LogChunk, LogRequest

_MOST_AT_ONCE = 64
_LOOK_SECONDS = 0.05

Coming = Callable[[UUID], bool]
"""Whether a task is ordered here and has only not been started yet."""


class LogStreams:
    def __init__(self, coming: Coming) -> None:
        self._coming = coming
        self._open: dict[UUID, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: LogRequest, runtimes: Iterable[Runtime], connection: Connection) -> None:
        """Begin to send; every answer ends with a chunk that says so, also when there is nothing to send."""
        if request.request_id in self._open:
            return
        stream = asyncio.create_task(self._send(request, list(runtimes), connection))
        self._open[request.request_id] = stream
        stream.add_done_callback(lambda _: self._open.pop(request.request_id, None))

    def cancel(self, request_id: UUID) -> None:
        stream = self._open.get(request_id)
        if stream is not None:
            stream.cancel()

    async def close(self) -> None:
        streams = list(self._open.values())
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _send(self, request: LogRequest, runtimes: list[Runtime], connection: Connection) -> None:
        error: str | None = None
        try:
            if len(self._open) > _MOST_AT_ONCE:
                raise MooringError(f"{_MOST_AT_ONCE} outputs are being read on this node already")
            async for data in _output(request, runtimes, self._coming):
                try:
                    await connection.send(LogChunk(request_id=request.request_id, data=data))
                except Unavailable:
                    return
        except MooringError as problem:
            error = problem.message
        except OSError as problem:
            error = f"the output cannot be read: {problem.strerror}"
        with contextlib.suppress(Unavailable):
            await connection.send(LogChunk(request_id=request.request_id, end=True, error=error))


async def _output(request: LogRequest, runtimes: list[Runtime], coming: Coming) -> AsyncIterator[bytes]:
    """The output from whichever runtime has it; of a task that is about to start, as soon as one does."""
    while True:
        early = coming(request.task_id)
        missing = NotFound(f"this node keeps no output of task {request.task_id}")
        for runtime in runtimes:
            try:
                async for data in runtime.logs(request.task_id, request.container, request.tail, request.follow):
                    yield data
                return
            except NotFound as problem:
                missing = problem
        if not early:
            raise missing
        await asyncio.sleep(_LOOK_SECONDS)
