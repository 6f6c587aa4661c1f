"""The address of the client behind a request or WebSocket: the one definition that logs, limits and records share.

`X-Forwarded-For` and `X-Forwarded-Proto` count only on connections from a configured proxy (`trusted_proxies`):
`uvicorn`'s middleware, outermost in the application, then puts the client's address and scheme into the ASGI scope.
On other connections the headers are ignored, so that no client can choose its address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from mooring.settings import IPNetwork

_FORWARDED = frozenset({b"x-forwarded-for", b"forwarded"})


def client_address(scope: Scope) -> str | None:
    """The client's IP address in its canonical form; None where the connection has none."""
    client = scope.get("client")
    try:
        parsed = ipaddress.ip_address(client[0] if client else "")
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.IPv6Address(int(parsed)))  # without the zone, which names an interface of this machine
    return str(parsed)


def address_key(address: str | None) -> str:
    """One key per IPv4 address or IPv6 network: a host has a whole /64 to choose addresses from."""
    if address is not None and ":" in address:
        return f"address {ipaddress.ip_network((address, 64), strict=False)}"
    return f"address {address}"


def is_forwarded(scope: Scope) -> bool:
    """Return whether a proxy, trusted or not, marked the request as forwarded."""
    return any(name in _FORWARDED for name, _value in scope["headers"])


def trusted_hosts(proxies: Sequence[IPNetwork]) -> list[str]:
    """Return the networks as the middleware compares them; a dual-stack socket writes IPv4 as `::ffff:10.0.0.1`."""
    return [str(proxy) for proxy in proxies] + [
        f"::ffff:{proxy.network_address}/{96 + proxy.prefixlen}"
        for proxy in proxies
        if isinstance(proxy, ipaddress.IPv4Network)
    ]
