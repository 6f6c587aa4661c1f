"""Authentication of requests, and the dependencies of routes that authorise their principal."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Annotated, Any, cast
from uuid import UUID

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.http import HTTPBase
from starlette.requests import HTTPConnection
from starlette.types import Scope

from mooring.api.auth import logins
from mooring.api.auth.logins import Login
from mooring.api.auth.tokens import Claims
from mooring.api.middleware.client_address import client_address
from mooring.api.middleware.flows import authorization, flow_of, is_unknown_keypair, lookup_key
from mooring.api.middleware.load_shedding.bodies import BODY_WITHHELD
from mooring.api.middleware.load_shedding.shedding import Flow
from mooring.api.middleware.outermost import LOGIN
from mooring.api.services import Services
from mooring.api.streams.server_proxy import FORWARDED
from mooring.model.errors import InvalidInput, NotAllowed, NotAuthenticated, Unavailable
from mooring.model.names import check_name
from mooring.model.tenancy.access import (
    Action,
    not_there,
    require,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.tenancy import keypairs
from mooring.store.tenancy import logins as stored_logins
from mooring.wire.fields import IdempotencyKey

_bearer = HTTPBearer(
    scheme_name="token",
    bearerFormat="JWT",
    description="The `access_token` in the response of `POST /api/auth/login`.",
    auto_error=False,
)
_basic = HTTPBase(
    scheme="basic",
    scheme_name="keypair",
    description="The access key and the secret of a keypair, from the response of `POST /api/keypairs`.",
    auto_error=False,
)


async def authenticate(scope: Scope) -> None:
    """Store the login of a request in its scope; raise NotAuthenticated if its credential is not valid."""
    scope[LOGIN] = await authenticated(scope["app"].state.services, HTTPConnection(scope))


async def resolve_flow(scope: Scope) -> Flow:
    """Return the flow of a request or WebSocket, after the look-up of a keypair that is not known yet."""
    services: Services = scope["app"].state.services
    if is_unknown_keypair(services, scope):
        await _look_up_keypair(services, scope)
    return flow_of(services, scope)


async def _look_up_keypair(services: Services, scope: Scope) -> None:
    """Remember the owner of a keypair for load shedding, or that the keypair is wrong.

    Look-ups have seats of their own, and a bucket per access key and address: a flood of requests without a credential
    does not delay the first request of a keypair from the same address, and neither does one of made-up keypairs.
    """
    load, shown = services.load, authorization(scope)
    access_key, secret = _parts(shown.partition(b" ")[2].decode("latin-1"))
    if not keypairs.is_access_key(access_key):
        load.credentials.remember(shown, None)
        return
    key = lookup_key(scope, access_key)
    seat = await load.keypair_lookups.seat(key)
    try:
        # Many first requests of one keypair may arrive together: one look-up is enough.
        if load.credentials.known(shown):
            return
        load.rates.keypair_lookup(key)
        async with services.database.read() as connection:
            found = await keypairs.verified(connection, access_key, secret, services.now())
    finally:
        seat.release()
    load.credentials.remember(shown, None if found is None else found.user_id)


# Not one of these waits for anything, but FastAPI would hand each to a thread unless it is async.
async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Served = Annotated[Services, Depends(_services)]


async def _login(
    services: Served,
    request: Request,
    _token: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    _keypair: Annotated[HTTPAuthorizationCredentials | None, Security(_basic)],
) -> Login:
    login: Login | None = request.scope.get(LOGIN)
    return login or await authenticated(services, request)


async def authenticated(services: Services, connection: HTTPConnection) -> Login:
    """Return the login of a request or WebSocket by its credential; raise NotAuthenticated if that is not valid."""
    shown = authorization(connection.scope)
    login = services.logins.find(shown, services.now())
    if login is None:
        async with services.logins.lookup(shown):
            login = services.logins.find(shown, services.now()) or await _look_up(services, shown)
    services.load.seen(login.principal)
    # Every successful use keeps the credential known.
    services.load.credentials.remember(shown, login.principal.user_id)
    if connection.scope.get(BODY_WITHHELD):
        # It was refused a moment ago and is valid again, as after a user was reactivated.
        raise Unavailable("this credential has just become valid again; repeat the request", code="try-again")
    address = _address(services, connection, shown)
    return replace(login, principal=replace(login.principal, address=address))


async def _look_up(services: Services, shown: bytes) -> Login:
    version, now = services.logins.version, services.now()
    try:
        login = await _verified(services, shown.decode("latin-1"))
    except NotAuthenticated:
        # A credential that was revoked is not its user's flow any more.
        services.load.credentials.remember(shown, None)
        raise
    services.logins.add(shown, login, version, now)
    return login


async def _verified(services: Services, shown: str) -> Login:
    scheme, _, credential = shown.partition(" ")
    if scheme.lower() == "bearer" and credential:
        return await _by_token(services, credential)
    if scheme.lower() == "basic" and credential:
        return await _by_keypair(services, *_parts(credential))
    raise NotAuthenticated("log in first: this needs the header 'Authorization: Bearer <token>'")


def _address(services: Services, connection: HTTPConnection, shown: bytes) -> str | None:
    """Return the client's address; of a request forwarded by another server, the address that it vouches for."""
    own = client_address(connection.scope)
    passed_on = connection.headers.get(FORWARDED)
    return own if passed_on is None else services.tokens.vouched(passed_on, shown.decode("latin-1")) or own


async def _by_token(services: Services, text: str) -> Login:
    claims, now = services.tokens.verify(text), services.now()
    async with services.database.read() as connection:
        login = await logins.by_token(connection, claims)
    login_id = claims.login_id
    if login_id is not None and login.noted_at is not None and not stored_logins.use_is_noted(login.noted_at, now):
        await services.database.write(lambda c: stored_logins.note_use(c, login_id, now), notify=False)
    return login


def _parts(written: str) -> tuple[str, str]:
    """Return the access key and the secret; empty texts if the credential cannot be parsed."""
    try:
        access_key, _, secret = base64.b64decode(written, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return access_key, secret


async def _by_keypair(services: Services, access_key: str, secret: str) -> Login:
    now = services.now()
    async with services.database.read() as connection:
        login, found = await logins.by_keypair(connection, access_key, secret, now)
    if not keypairs.use_is_noted(found, now):
        await services.database.write(lambda c: keypairs.note_use(c, found, now), notify=False)
    return login


LoggedIn = Annotated[Login, Depends(_login)]


async def _user(login: LoggedIn) -> Principal:
    return login.principal


async def _claims(login: LoggedIn) -> Claims:
    if login.claims is None:
        raise NotAllowed("this requires a login by password, not a keypair", code="keypair-scope")
    return login.claims


def needs(action: Action) -> Any:
    """Return a dependency: the principal, allowed to do this to its own objects or to those of the cluster."""

    async def allowed(login: LoggedIn) -> Principal:
        require(login.principal, action)
        return login.principal

    return Depends(allowed)


User = Annotated[Principal, Depends(_user)]
"""Any authenticated principal; each route checks what it may see."""
ByPassword = Annotated[Claims, Depends(_claims)]
Submitter = Annotated[Principal, needs(Action.SUBMIT)]
IdempotencyHeader = Annotated[
    IdempotencyKey | None,
    Header(
        alias="Idempotency-Key",
        description="Chosen by the client: a request repeated with the same key gets the same response",
    ),
]


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def named(what: str, name: str) -> str:
    """Return a name from a path; raise NotFound if it cannot be a name."""
    if not is_name(name):
        raise not_there(f"{what} {name[:63]!r}")
    return name


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except InvalidInput:
        return False
    return True
