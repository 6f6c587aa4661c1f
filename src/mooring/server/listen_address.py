"""Where a server listens, and by which address it is reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mooring.model.errors import Conflict
from mooring.settings import Settings


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """The port is taken before anything is changed, so that a busy one is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another port with --port",
            code="port-in-use",
        ) from None
    with listener:
        yield listener


def url_of(settings: Settings, listener: socket.socket) -> str:
    scheme = "https" if settings.tls_cert else "http"
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


def url_for_others(settings: Settings, url: str) -> str:
    """As the settings say; else one that listens everywhere is reached by the name of its machine."""
    return settings.public_url if settings.public_url is not None else url_of_this_one(settings, url)


def url_of_this_one(settings: Settings, url: str) -> str:
    """Of this very server: what the settings say may be the address of several."""
    if settings.host not in ("0.0.0.0", "::"):
        return url
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{socket.gethostname()}:{rest.rpartition(':')[2]}"
