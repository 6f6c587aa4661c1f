"""Connections with what listens inside a container, through its own network namespace: no network of it is needed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from pathlib import Path

from mooring.agent.containers.course import Seen

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


async def connect(container: Seen, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with a port of the container on its loopback, or on its address where root is not had."""
    if os.getuid() == 0:
        made = _socket(container)
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        except BaseException:
            made.close()
            raise
        return await asyncio.open_connection(sock=made)
    if container.address is None:
        raise OSError("an agent without root cannot reach a container that has no network")
    return await asyncio.open_connection(container.address, port)


def _socket(container: Seen) -> socket.socket:
    """One that belongs to the container's namespace, wherever it is used."""
    found: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            namespace = os.open(f"/proc/{container.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                # Looked at after opening: by now the number may be that of another process.
                if container.id not in Path(f"/proc/{container.pid}/cgroup").read_text():
                    raise OSError("the container has ended")
                if _libc.setns(namespace, _NEW_NETWORK) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                made.setblocking(False)
                found.append(made)
            finally:
                os.close(namespace)
        except OSError as error:
            found.append(error)

    # A thread of its own, which ends in the namespace that it went to.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]
