"""The choice of the server, and the canonical form of its address."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mooring.client.credentials import CredentialStore
from mooring.client.local import find_local_server
from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    import ssl

DEFAULT_SERVER = "http://127.0.0.1:8000"


def resolve_server(given: str | None, store: CredentialStore) -> str:
    """Return the server: the argument, MOORING_SERVER, the last login, this machine's server, or the default."""
    named = given or os.environ.get("MOORING_SERVER") or store.last_server()
    if named:
        return canonical_address(named)
    local = find_local_server()
    return canonical_address(local.url) if local else DEFAULT_SERVER


def canonical_address(text: str) -> str:
    """Return the canonical form of an address, which is the key of a login: scheme, host, port and path."""
    written = text.strip()
    if "://" not in written:
        written = f"http://{written}"
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InvalidInput(
            f"{text[:80]!r} is not the address of a server; write it like http://host:8000 or https://host",
            code="invalid-address",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown_port = "" if port is None or port == {"http": 80, "https": 443}[parts.scheme] else f":{port}"
    return f"{parts.scheme}://{host}{shown_port}{parts.path.rstrip('/')}"


def is_loopback(server: str) -> bool:
    """Only this machine can reach the address."""
    import ipaddress

    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_for(server: str) -> str | None:
    """The proxy that the environment names for this server; never one for this machine itself."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(server)
    if is_loopback(server) or proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def tls_context(server: str, ca_file: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the CA file, or the system's authorities without one."""
    import ssl

    if not server.startswith("https:"):
        # Never used; loading the system's authorities for it would cost every command tens of milliseconds.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as problem:
        raise InvalidInput(f"the CA file {ca_file!r} cannot be used: {problem}", code="invalid-ca-file") from problem
