"""Connection settings of both clients: timeouts, and keep-alive probes that detect a dead peer."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from mooring import __version__
from mooring.wire.versions import CLIENT_HEADER, PROTOCOL, ClientVersion

HEADERS = {CLIENT_HEADER: str(ClientVersion("mooring-python", __version__, PROTOCOL))}
"""Identifies the client version to the server."""
TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
# Below the server's own limit for idle connections, so that it does not close one just as it is used.
IDLE_SECONDS = 4.0
MAX_CONNECTIONS = 100

# A followed log may be silent for hours; without probes a dead peer would look the same.
SOCKET_OPTIONS: Iterable[tuple[int, int, int]] = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
