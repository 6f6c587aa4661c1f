"""Connection of a command to its server: URL, credentials and trusted CA."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mooring.client import AsyncClient, Client


_last_server: str | None = None


def last_server() -> str | None:
    """Return the server of the last connection, which an error message may ask for more."""
    return _last_server


def connect(server: str | None, *, ca_file: str | None = None, timeout_seconds: float | None = None) -> Client:
    """Return a client, to be used in a `with` block."""
    from mooring.client import Client

    return Client(**_resolved(server, ca_file, timeout_seconds))


def read(
    server: str | None, path: str, query: Mapping[str, str] | None = None, *, timeout_seconds: float | None = None
) -> bytes:
    """Return the answer to a GET, without a client if none is needed."""
    from mooring.client.quick import quick_get

    settings = _resolved(server, None, timeout_seconds)
    content = quick_get(path, query or {}, **settings)
    if content is not None:
        return content
    from mooring.client import Client
    from mooring.client.operations.operation import Operation

    with Client(**settings) as client:
        return client.send(Operation("GET", path, str, query=query or {})).encode()


def connect_async(server: str | None) -> AsyncClient:
    """Return an asynchronous client for bidirectional streams, to be used in an `async with` block."""
    from mooring.client import AsyncClient

    return AsyncClient(**_resolved(server, None, None))


def _resolved(server: str | None, ca_file: str | None, timeout_seconds: float | None) -> dict[str, Any]:
    """Return the server's URL, the credentials and the trusted CA."""
    from mooring.client.address import canonical_address, resolve_server
    from mooring.client.connection import TIMEOUT_SECONDS
    from mooring.client.credentials import CredentialStore
    from mooring.client.local import find_local_server

    store = CredentialStore.of_user()
    global _last_server
    address = _last_server = resolve_server(server, store)
    authority = ca_file or os.environ.get("MOORING_CA_FILE")
    if authority is None and address.startswith("https:"):
        login, local = store.get(address), find_local_server()
        if login and login.ca_file:
            authority = login.ca_file
        elif local and canonical_address(local.url) == address:
            authority = local.ca_file
    token = secret_from_environment("MOORING_TOKEN", "token")
    return {
        "server": address,
        "token": token,
        "keypair": None if token else _keypair(),
        "store": store,
        "ca_file": authority,
        "timeout_seconds": timeout_seconds or TIMEOUT_SECONDS,
    }


def _keypair() -> tuple[str, str] | None:
    """Return the keypair of the environment, if there is one."""
    access_key = os.environ.get("MOORING_ACCESS_KEY")
    secret = secret_from_environment("MOORING_SECRET_KEY", "secret_key")
    if access_key and secret:
        return access_key, secret
    if access_key or secret:
        raise InvalidInput("only one of MOORING_ACCESS_KEY and MOORING_SECRET_KEY is set; set both or neither")
    return None


def secret_from_environment(variable: str, credential: str) -> str | None:
    """Return the value of the variable, of the file that `VARIABLE_FILE` names, or of the systemd credential."""
    from mooring.security import secret_sources

    found = secret_sources.find(os.environ, variable, credential)
    return found[0] if found is not None else None
