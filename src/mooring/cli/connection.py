"""How a command reaches its server: which one, as whom, trusting which authority."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from mooring.client import AsyncClient, Client


def connect(server: str | None, *, ca_file: str | None = None, timeout_seconds: float | None = None) -> Client:
    """The client for the server that is meant; use it in a `with`."""
    from mooring.client import Client

    return Client(**_meant(server, ca_file, timeout_seconds))


def connect_async(server: str | None) -> AsyncClient:
    """As `connect`, for what goes both ways at once; use it in an `async with`."""
    from mooring.client import AsyncClient

    return AsyncClient(**_meant(server, None, None))


def _meant(server: str | None, ca_file: str | None, timeout_seconds: float | None) -> dict[str, Any]:
    """Which server, as whom, trusting which authority."""
    from mooring.client.address import canonical_address, resolve_server
    from mooring.client.connection import TIMEOUT_SECONDS
    from mooring.client.credentials import CredentialStore
    from mooring.client.local import find_local_server

    store = CredentialStore.of_user()
    address = resolve_server(server, store)
    authority = ca_file or os.environ.get("MOORING_CA_FILE")
    if authority is None and address.startswith("https:"):
        login, local = store.get(address), find_local_server()
        if login and login.ca_file:
            authority = login.ca_file
        elif local and canonical_address(local.url) == address:
            authority = local.ca_file
    token = os.environ.get("MOORING_TOKEN") or None
    return {
        "server": address,
        "token": token,
        "keypair": None if token else _keypair(),
        "store": store,
        "ca_file": authority,
        "timeout_seconds": timeout_seconds or TIMEOUT_SECONDS,
    }


def _keypair() -> tuple[str, str] | None:
    """The keypair that the environment names, if it names one."""
    access_key, secret = os.environ.get("MOORING_ACCESS_KEY"), os.environ.get("MOORING_SECRET_KEY")
    if access_key and secret:
        return access_key, secret
    if access_key or secret:
        raise InvalidInput("set both MOORING_ACCESS_KEY and MOORING_SECRET_KEY, or none of them")
    return None
