"""The flow of a request, found without the database wherever the credential allows it."""

from __future__ import annotations

from uuid import UUID

from starlette.types import Scope

from mooring.api.middleware.client_address import address_key, client_address
from mooring.api.middleware.load_shedding.shedding import Flow
from mooring.api.services import Services
from mooring.model.errors import NotAuthenticated

BEARER_SUBPROTOCOL = "mooring.bearer."
"""Prefix of a WebSocket subprotocol that carries a token, since browsers set no headers on WebSockets."""


def authorization(scope: Scope) -> bytes:
    """Return the credential of a request or WebSocket as its `Authorization` header has it; empty without one."""
    shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    if shown or scope["type"] != "websocket":
        return shown
    offered = (each for each in scope.get("subprotocols", ()) if each.startswith(BEARER_SUBPROTOCOL))
    token = next(offered, "").removeprefix(BEARER_SUBPROTOCOL)
    return f"Bearer {token}".encode("latin-1", "replace") if token else b""


def flow_of(services: Services, scope: Scope) -> Flow:
    """The user's flow if a credential is shown that is verified; the flow of the address otherwise.

    A token's signature is verified here. A keypair needs the database: one that is not known yet is looked up first
    (`is_unknown_keypair`), with a bucket and seats apart from those of the address, and stays known while it is used.
    """
    shown = authorization(scope)
    user_id = services.load.credentials.owner(shown)
    if user_id is None and shown and not services.load.credentials.known(shown):
        user_id = _token_owner(services, shown)
        if user_id is not None:
            services.load.credentials.remember(shown, user_id)
    return address_flow(scope) if user_id is None else user_flow(user_id)


def user_flow(user_id: UUID) -> Flow:
    return Flow(f"user {user_id}", user_id)


def address_flow(scope: Scope) -> Flow:
    return Flow(address_key(client_address(scope)))


def require_possible_credential(services: Services, scope: Scope) -> None:
    """Raise NotAuthenticated without a credential, or for a token that is not valid whatever the database says."""
    scheme, _, text = authorization(scope).partition(b" ")
    if scheme.lower() == b"bearer" and text:
        services.tokens.verify(text.decode("latin-1"))
    elif not is_keypair(authorization(scope)):
        raise NotAuthenticated("log in first: this needs the header 'Authorization: Bearer <token>'")


def is_unknown_keypair(services: Services, scope: Scope) -> bool:
    """Return whether the request's keypair must be looked up before its flow is known."""
    shown = authorization(scope)
    return is_keypair(shown) and not services.load.credentials.known(shown)


def lookup_key(scope: Scope, access_key: str) -> str:
    """Return the flow key for lookups of one access key from one address."""
    return f"keypair {access_key} {address_flow(scope).key}"


def is_keypair(shown: bytes) -> bool:
    return shown[:6].lower() == b"basic "


def _token_owner(services: Services, shown: bytes) -> UUID | None:
    scheme, _, text = shown.partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    try:
        return services.tokens.verify(text.decode("latin-1")).user_id
    except NotAuthenticated:
        return None
