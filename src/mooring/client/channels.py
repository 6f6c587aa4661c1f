"""A channel into a task as a client holds it: bytes in, bytes out, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import TracebackType

import aiohttp

from mooring.client.answers import read_error
from mooring.model.errors import MooringError, Unavailable
from mooring.wire import channels as wire
from mooring.wire.flow import Side

_PROBLEM = 409


class Channel:
    """Open while its `async with` runs; leaving it ends the command that it runs, if it runs one."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, server: str) -> None:
        self._socket = socket
        self._server = server
        self._side = Side(_Link(socket))
        self._ending: wire.Ending | None = None
        self._decided = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def opened(self) -> None:
        """Returns when the task is reached; the error where it cannot be."""
        await self._decided.wait()
        if self._ending is not None:
            self._check(self._ending)

    async def read(self) -> tuple[bytes, bool] | None:
        """What comes out, and whether it is standard error; None: nothing more will."""
        return await self._side.read()

    async def write(self, data: bytes) -> None:
        """Hand in, as fast as it is taken; none at all: nothing more will come."""
        try:
            await self._side.write(data)
        except (aiohttp.ClientError, ConnectionError) as problem:
            raise self._broken() from problem

    async def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_bytes(wire.encode(wire.Size(rows, columns)))

    async def exit_code(self) -> int | None:
        """Of the command, once it is over; the error where it did not end well."""
        await self._side.ended.wait()
        assert self._ending is not None
        self._check(self._ending)
        return self._ending.exit_code

    @property
    def complaint(self) -> str:
        """Why the command that has ended with an exit code had never begun."""
        return self._ending.message if self._ending is not None else ""

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._socket.close()

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._take(wire.decode(message.data))
        finally:
            if self._ending is None:
                self._end(_ending_of(self._broken()))

    def _take(self, frame: wire.Frame) -> None:
        match frame:
            case wire.Data():
                if not self._side.take(frame.data, frame.error):
                    self._end(_ending_of(self._broken()))
            case wire.Window():
                self._side.grant(frame.count)
                self._decided.set()
            case wire.Ending():
                self._end(frame)

    def _end(self, ending: wire.Ending) -> None:
        self._ending = self._ending or ending
        self._side.end()
        self._decided.set()

    def _check(self, ending: wire.Ending) -> None:
        if ending.code is not None and ending.exit_code is None:
            body = {"code": ending.code, "message": ending.message, "details": {}}
            raise read_error(ending.status or _PROBLEM, json.dumps(body).encode(), self._server)

    def _broken(self) -> Unavailable:
        return Unavailable(f"the connection with {self._server} broke", code="connection-lost")


class _Link:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def data(self, data: bytes, error: bool) -> None:
        await self._socket.send_bytes(wire.encode(wire.Data(data, error)))

    async def window(self, count: int) -> None:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_bytes(wire.encode(wire.Window(count)))


def _ending_of(error: MooringError) -> wire.Ending:
    return wire.Ending(status=503, code=error.code, message=error.message)
