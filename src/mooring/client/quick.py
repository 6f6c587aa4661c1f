"""Reads for commands that have to start fast, over http.client and msgspec.

The clients take a quarter of a second to import. A plain GET with a valid login needs little of them; in every other
case (no login, one to renew, a proxy, an error) the caller uses a client, which repeats the request.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from mooring.client.address import is_loopback, tls_context
from mooring.client.authentication import Authentication
from mooring.client.connection import CONNECT_SECONDS, HEADERS
from mooring.client.credentials import CredentialStore
from mooring.model.errors import MooringError

T = TypeVar("T")


def quick_get(
    path: str,
    query: Mapping[str, str],
    *,
    server: str,
    token: str | None,
    keypair: tuple[str, str] | None,
    store: CredentialStore,
    ca_file: str | None,
    timeout_seconds: float,
) -> bytes | None:
    """Return the answer, or None if a client has to send the request."""
    import http.client

    authentication = Authentication(server, token=token, keypair=keypair, store=store)
    if not authentication.headers or authentication.renewal_due() or _may_have_proxy(server):
        return None
    parts = urlsplit(server)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = tls_context(server, ca_file)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=CONNECT_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=min(CONNECT_SECONDS, timeout_seconds))
    target = f"{parts.path}{path}" + (f"?{urlencode(query)}" if query else "")
    try:
        connection.connect()
        connection.sock.settimeout(timeout_seconds)
        connection.request("GET", target, headers={**HEADERS, **authentication.headers})
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except TimeoutError as problem:
        from mooring.client.answers import timed_out

        raise timed_out(server, connection.timeout or timeout_seconds) from problem
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def decoded(kind: type[T], content: bytes, *, source: str) -> T:
    """Return an answer as a msgspec struct."""
    import msgspec

    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as problem:
        raise MooringError(
            f"the answer of {source} is not what this version of Mooring expects ({problem}); are the server's and"
            " the client's versions the same?",
            code="unexpected-answer",
        ) from problem


def document(content: bytes) -> Any:
    """Return an answer as plain values, with the fields that this version does not know."""
    import json

    return json.loads(content)


def _may_have_proxy(server: str) -> bool:
    return not is_loopback(server) and any(name.lower().endswith("_proxy") for name in os.environ)
