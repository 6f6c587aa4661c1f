"""Connections with what listens inside a container, through its own network namespace: no network of it is needed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from pathlib import Path

from mooring.agent.containers.course import Seen
from mooring.agent.dialling import Connected
from mooring.model.errors import Conflict

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


async def connect(container: Seen, port: int) -> Connected:
    """With a port of the container on its loopback; at its address where its network may not be entered."""
    try:
        made = _socket(container)
    except PermissionError:
        if container.address is None:
            raise Conflict(
                "the agent may not enter the task's network, and the task has no address", code="not-reachable"
            ) from None
        return await asyncio.open_connection(container.address, port)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=made)
    except BaseException:
        made.close()
        raise


def _socket(container: Seen) -> socket.socket:
    """One that belongs to the container's namespace, wherever it is used."""
    found: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            with Path(f"/proc/{container.pid}/ns/net").open("rb") as namespace:
                # Looked at after opening: by now the number may be that of another process.
                if container.id not in Path(f"/proc/{container.pid}/cgroup").read_text():
                    raise OSError("the container has ended")
                if _libc.setns(namespace.fileno(), _NEW_NETWORK) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.setblocking(False)
            found.append(made)
        except OSError as error:
            found.append(error)

    # A thread of its own, which ends in the namespace that it went to.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]
