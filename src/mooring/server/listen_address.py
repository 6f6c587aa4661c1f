"""The listening socket of a server, and its address for clients and for other servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mooring.model.errors import Conflict
from mooring.settings import Settings


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Bind the port before anything is changed, so that a busy port is reported at once."""
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
    """Return the configured public URL; by default a server that listens everywhere is reached by its host name."""
    return settings.public_url if settings.public_url is not None else own_url(settings, url)


def own_url(settings: Settings, url: str) -> str:
    """Return the URL of this server alone: the configured public URL may be that of several."""
    if settings.host not in ("0.0.0.0", "::"):
        return url
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{socket.gethostname()}:{rest.rpartition(':')[2]}"
