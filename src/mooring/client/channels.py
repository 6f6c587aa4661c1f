"""The client's side of a channel into a task: input, output and result."""

from __future__ import annotations

import asyncio
import contextlib
import json
from types import TracebackType

import aiohttp

from mooring.client.answers import read_error
from mooring.model.errors import MooringError, Unavailable
from mooring.wire.agents import channels as wire
from mooring.wire.agents.flow import Side

_PROBLEM = 409


class Channel:
    """Open within its `async with`; leaving it ends its command, if any."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, server: str) -> None:
        self._socket = socket
        self._server = server
        self._side = Side(_Link(socket))
        self._received_end: wire.ChannelResult | None = None
        self._decided = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def opened(self) -> None:
        """Return when the channel is open; raise the error if it cannot be opened."""
        await self._decided.wait()
        if self._received_end is not None:
            self._check(self._received_end)

    async def read(self) -> tuple[bytes, bool] | None:
        """Return the next output, and whether it is standard error; None at the end."""
        return await self._side.read()

    async def write(self, data: bytes) -> None:
        """Send input as fast as it is accepted; empty: end of input."""
        try:
            await self._side.write(data)
        except (aiohttp.ClientError, ConnectionError) as problem:
            raise self._broken() from problem

    async def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_bytes(wire.encode(wire.Size(rows, columns)))

    async def exit_code(self) -> int | None:
        """Return the exit code of the command once it has ended; raise the error if it failed."""
        await self._side.ended.wait()
        assert self._received_end is not None
        self._check(self._received_end)
        return self._received_end.exit_code

    @property
    def complaint(self) -> str:
        """The reason why a command with an exit code never started; otherwise empty."""
        return self._received_end.message if self._received_end is not None else ""

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
            if self._received_end is None:
                self._end(_end_of_error(self._broken()))

    def _take(self, frame: wire.Frame) -> None:
        match frame:
            case wire.Data():
                if not self._side.take(frame.data, frame.error):
                    self._end(_end_of_error(self._broken()))
            case wire.Window():
                self._side.grant(frame.count)
                self._decided.set()
            case wire.ChannelResult():
                self._end(frame)

    def _end(self, end: wire.ChannelResult) -> None:
        self._received_end = self._received_end or end
        self._side.end()
        self._decided.set()

    def _check(self, end: wire.ChannelResult) -> None:
        if end.code is not None and end.exit_code is None:
            body = {"code": end.code, "message": end.message, "details": {}}
            raise read_error(end.status or _PROBLEM, json.dumps(body).encode(), self._server)

    def _broken(self) -> Unavailable:
        return Unavailable(f"the connection to {self._server} broke", code="connection-lost")


class _Link:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def data(self, data: bytes, error: bool) -> None:
        await self._socket.send_bytes(wire.encode(wire.Data(data, error)))

    async def window(self, count: int) -> None:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_bytes(wire.encode(wire.Window(count)))


def _end_of_error(error: MooringError) -> wire.ChannelResult:
    return wire.ChannelResult(status=503, code=error.code, message=error.message)
