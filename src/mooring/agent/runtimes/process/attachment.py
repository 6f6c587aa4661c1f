"""A user attached to the console of a process task, through its supervisor's socket."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

from mooring.agent.runtimes.process.supervisor import console
from mooring.model.errors import Conflict


class Attachment:
    """Input and output of a process. Closing it does not affect the process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._exit_code: int | None = None

    @classmethod
    async def to(cls, folder: Path, index: int, *, replay: bool, output: bool) -> Attachment:
        """Attach to the container of this index of the task with this folder."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            # By descriptor, since the path of a socket may have at most 107 bytes.
            descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/{console.socket_name(index)}")
            finally:
                os.close(descriptor)
            attached = cls(connection)
            await attached._send(console.OPEN + bytes((replay, output)))
        except OSError as problem:
            connection.close()
            raise Conflict("its process does not run at the moment", code="not-running") from problem
        return attached

    async def read(self) -> tuple[bytes, bool] | None:
        while self._exit_code is None and (message := await self._receive()):
            if message[:1] == console.OUTPUT:
                return message[1:], False
            if message[:1] == console.EXIT:
                self._exit_code = int(message[1:])
        return None

    async def write(self, data: bytes) -> None:
        if not data:
            await self._send(console.END_OF_INPUT)
        for begin in range(0, len(data), console.PIECE_BYTES):
            await self._send(console.INPUT + data[begin : begin + console.PIECE_BYTES])

    async def resize(self, rows: int, columns: int) -> None:
        await self._send(console.SIZE + struct.pack("!HH", rows, columns))

    async def exit_code(self) -> int | None:
        """Return the exit code of the process; None if its supervisor has ended without reporting it."""
        return self._exit_code

    async def close(self) -> None:
        self._connection.close()

    async def _receive(self) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._connection, console.PIECE_BYTES + 1)
        except OSError:
            return b""

    async def _send(self, message: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection, message)
        except (BrokenPipeError, ConnectionResetError):  # the process has ended
            return
