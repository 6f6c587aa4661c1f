"""A small TCP balancer before several servers: each connection goes to the next one that answers."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_CONNECT_SECONDS = 20.0
_AGAIN_SECONDS = 0.02


@contextmanager
def balancer(ports: Sequence[int]) -> Iterator[str]:
    """The address of a balancer before these ports of this machine."""
    iterations = itertools.count()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_serve, args=(client, ports, next(iterations)), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, ports: Sequence[int], iterate: int) -> None:
    with client, contextlib.suppress(OSError), _connect(ports, iterate) as server:
        back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
        back.start()
        _pass_on(client, server)
        back.join()


def _connect(ports: Sequence[int], iterate: int) -> socket.socket:
    deadline = time.monotonic() + _CONNECT_SECONDS
    while time.monotonic() < deadline:
        for number in range(len(ports)):
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", ports[(iterate + number) % len(ports)]))
        time.sleep(_AGAIN_SECONDS)
    raise TimeoutError("no server answers")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Forward one side's data until it sends no more."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
