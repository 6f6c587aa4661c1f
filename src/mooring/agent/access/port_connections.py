"""TCP connections to ports of a task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

from mooring.agent.access.commands import DataOnly
from mooring.model.errors import Unavailable

_PIECE_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PortConnection(DataOnly):
    """A TCP connection whose directions are closed independently."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def by(cls, connecting: Awaitable[Connected], port: int) -> PortConnection:
        """Connect to a port of the task; Unavailable if nothing listens on it."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return cls(*await connecting)
        except OSError as error:
            why = error.strerror or str(error) or "no answer in time"
            raise Unavailable(
                f"nothing answers on port {port} of the task: {why}", code="port-not-answering"
            ) from error

    async def read(self) -> tuple[bytes, bool] | None:
        try:
            data = await self._reader.read(_PIECE_BYTES)
        except OSError:
            return None
        return (data, False) if data else None

    async def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if data:
                self._writer.write(data)
                await self._writer.drain()
            elif self._writer.can_write_eof():
                self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except OSError:  # includes a timeout
            self._writer.transport.abort()
