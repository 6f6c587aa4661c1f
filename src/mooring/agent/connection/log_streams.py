"""Log streams that the server currently reads: opened, sent at its pace, cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from uuid import UUID

from mooring.agent.connection.stream import Connection
from mooring.agent.runtimes.contract import Runtime
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.wire.agents.agent_protocol import LogChunk, LogRequest

_MAX_CONCURRENT = 64
_POLL_SECONDS = 0.05

Coming = Callable[[UUID], bool]
"""Returns whether a task is ordered here but not started yet."""


class LogStreams:
    def __init__(self, coming: Coming) -> None:
        self._coming = coming
        self._open: dict[UUID, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, request: LogRequest, runtimes: Iterable[Runtime], connection: Connection) -> None:
        """Start sending. Every response ends with a final chunk, even if there is no output."""
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
        error, code = None, ""
        timed = request.timestamps or request.since is not None
        try:
            if len(self._open) > _MAX_CONCURRENT:
                raise MooringError(f"{_MAX_CONCURRENT} outputs are already being read on this node")
            async for data in _output(request, runtimes, self._coming):
                try:
                    await connection.send(LogChunk(request_id=request.request_id, data=data, times=timed))
                except Unavailable:
                    return
        except MooringError as problem:
            error, code = problem.message, problem.code
        except OSError as problem:
            error = f"the output cannot be read: {problem.strerror}"
        with contextlib.suppress(Unavailable):
            await connection.send(
                LogChunk(request_id=request.request_id, end=True, error=error, code=code, times=timed)
            )


async def _output(request: LogRequest, runtimes: list[Runtime], coming: Coming) -> AsyncIterator[bytes]:
    """Yield the output from the runtime that has it. For a task about to start, wait for it."""
    while True:
        early = coming(request.task_id)
        missing = NotFound(f"this node has no stored output of task {request.task_id}")
        for runtime in runtimes:
            try:
                async for data in _logs(runtime, request):
                    yield data
                return
            except NotFound as problem:
                missing = problem
        if not early:
            raise missing
        await asyncio.sleep(_POLL_SECONDS)


def _logs(runtime: Runtime, request: LogRequest) -> AsyncIterator[bytes]:
    asked = (request.task_id, request.container, request.tail, request.follow)
    if not request.timestamps and request.since is None:
        return runtime.logs(*asked)
    if "timestamps" not in inspect.signature(runtime.logs).parameters:
        raise Conflict("its runtime does not record times: leave out --since and --timestamps", code="no-times")
    return runtime.logs(*asked, since=request.since, timestamps=request.timestamps)
