"""Connections with what listens on this machine, or in a network namespace on it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from mooring.agent.commands import DataOnly
from mooring.model.errors import Conflict, Unavailable

_PIECE_BYTES = 64 * 1024
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_LOOPBACK = "127.0.0.1"
_NETWORK = 0x40000000  # CLONE_NEWNET

_libc = ctypes.CDLL(None, use_errno=True)


class Dialled(DataOnly):
    """A TCP connection; each direction ends by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int, host: str = _LOOPBACK) -> Dialled:
        """What listens on this machine, or at an address that it reaches."""
        return await cls._by(socket.socket(), host, port)

    @classmethod
    async def inside(cls, pid: int, address: str | None, port: int) -> Dialled:
        """What listens in the network of a process; without the right to enter it, at its address."""
        try:
            made = await _in_thread(lambda: _socket_inside(pid))
        except PermissionError:
            if address is None:
                raise Conflict(
                    "the agent may not enter the task's network, and the task has no address", code="not-reachable"
                ) from None
            return await cls.to(port, address)
        return await cls._by(made, _LOOPBACK, port)

    @classmethod
    async def _by(cls, made: socket.socket, host: str, port: int) -> Dialled:
        made.setblocking(False)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (host, port))
                return cls(*await asyncio.open_connection(sock=made))
        except OSError as error:
            made.close()
            why = error.strerror or "no answer in time"
            raise Unavailable(
                f"nothing answers on port {port} of the task: {why}", code="port-not-answering"
            ) from error
        except BaseException:
            made.close()
            raise

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
        except OSError:  # also when it takes too long
            self._writer.transport.abort()


def _socket_inside(pid: int) -> socket.socket:
    """A socket of another process' network. Only for a thread that ends with it: the thread stays in that network."""
    network = Path(f"/proc/{pid}/ns/net")
    if network.readlink() == Path("/proc/self/ns/net").readlink():
        raise Conflict("the task has no network of its own", code="not-reachable")
    with network.open("rb") as entrance:
        if _libc.setns(entrance.fileno(), _NETWORK) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    return socket.socket()


async def _in_thread(work: Callable[[], socket.socket]) -> socket.socket:
    """Done in a thread of its own, that is used for nothing else afterwards."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[socket.socket] = loop.create_future()

    def tell(outcome: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(lambda: None if made.done() else outcome())

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            problem = error
            tell(lambda: made.set_exception(problem))
        else:
            tell(lambda: made.set_result(result))

    Thread(target=run, name="dialling", daemon=True).start()
    return await made
