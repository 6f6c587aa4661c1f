"""Sockets that belong to the network namespace of another process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from mooring.agent.access.port_connections import Connected

_NEW_NETWORK = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


async def connect(made: socket.socket, port: int) -> Connected:
    """Connect to a port on the loopback of the socket's namespace."""
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=made)
    except BaseException:
        made.close()
        raise


def socket_of(pid: int, is_current: Callable[[], bool]) -> socket.socket:
    """Return a socket in the network namespace of the process; OSError if the process has been replaced."""
    found: list[socket.socket | OSError] = []

    def make() -> None:
        try:
            with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
                # Checked after opening, since the pid may have been reused before.
                if not is_current():
                    raise ProcessLookupError("the process has ended")
                if _libc.setns(namespace.fileno(), _NEW_NETWORK) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.setblocking(False)
            found.append(made)
        except OSError as error:
            found.append(error)

    # A separate thread, which stays in that namespace until it ends.
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]
