"""Who asks, and what of it they may see: the dependencies that the routes share."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast
from uuid import UUID

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.http import HTTPBase
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from mooring.api.compatibility import check_client
from mooring.api.passing_on import PASSED_ON
from mooring.api.pressure import Pressure
from mooring.api.services import Services
from mooring.api.tokens import Claims
from mooring.model.access import Action, not_there, require, require_seen
from mooring.model.errors import InvalidInput, NotAllowed, NotAuthenticated
from mooring.model.names import check_name
from mooring.model.tenants import Principal
from mooring.store import keypairs, tenants
from mooring.store.tenants import Standing
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WorkloadRow
from mooring.wire.fields import IdempotencyKey

_bearer = HTTPBearer(
    scheme_name="token",
    bearerFormat="JWT",
    description="The `access_token` that `POST /api/auth/login` answers with.",
    auto_error=False,
)
_basic = HTTPBase(
    scheme="basic",
    scheme_name="keypair",
    description="The access key and the secret of a keypair, as `POST /api/keypairs` answers with.",
    auto_error=False,
)


@dataclass(frozen=True, slots=True)
class Login:
    principal: Principal
    claims: Claims | None
    """None for one who came with a keypair."""


def admit(scope: Scope) -> None:
    """Before anything is read: who is too old is told so, and who shows no credential is counted by its address."""
    headers = Headers(scope=scope)
    check_client(headers)
    if "authorization" not in headers:
        client = scope.get("client")
        services: Services = scope["app"].state.services
        services.rates.address(client[0] if client else None)


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
    return await authenticated(services, request)


async def authenticated(services: Services, connection: HTTPConnection) -> Login:
    """Who asks, by the credential that a request or a WebSocket shows; NotAuthenticated where it is none."""
    shown = connection.headers.get("Authorization", "")
    address = _address(services, connection, shown)
    scheme, _, credential = shown.partition(" ")
    try:
        if scheme.lower() == "bearer" and credential:
            login = await _by_token(services, credential)
        elif scheme.lower() == "basic" and credential:
            login = await _by_keypair(services, *_parts(credential))
        else:
            raise NotAuthenticated("log in first: this needs the header 'Authorization: Bearer <token>'")
    except NotAuthenticated:
        if "Authorization" in connection.headers:
            # Those that show none were counted at the door.
            services.rates.address(address)
        raise
    services.rates.request(login.principal)
    if login.principal.is_admin:
        services.pressure.trust(Pressure.credential(connection.headers["Authorization"].encode("latin-1")))
    return replace(login, principal=replace(login.principal, address=address))


def _address(services: Services, connection: HTTPConnection, shown: str) -> str | None:
    """Where somebody asks from; of what another server passed on, where that server was asked from."""
    own = connection.client.host if connection.client else None
    passed_on = connection.headers.get(PASSED_ON)
    return own if passed_on is None else services.tokens.vouched(passed_on, shown) or own


async def _by_token(services: Services, text: str) -> Login:
    claims = services.tokens.verify(text)
    services.rates.check(claims.user_id)
    async with services.database.read() as connection:
        standing = await tenants.standing(connection, claims.user_id)
    if standing is None or not standing.active or standing.token_epoch != claims.epoch:
        raise NotAuthenticated("this login was ended; log in again", code="token-revoked")
    return Login(standing.principal, claims)


def _parts(written: str) -> tuple[str, str]:
    """The access key and the secret; whatever cannot be read is neither."""
    try:
        access_key, _, secret = base64.b64decode(written, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return access_key, secret


async def _by_keypair(services: Services, access_key: str, secret: str) -> Login:
    now = services.now()
    standing: Standing | None = None
    async with services.database.read() as connection:
        found = await keypairs.verified(connection, access_key, secret, now)
        if found is not None:
            standing = await tenants.standing(connection, found.user_id)
    # One that was switched on again does not bring back a membership that ended.
    if found is None or standing is None or not standing.active or found.project_id not in standing.principal.projects:
        raise NotAuthenticated(
            "this keypair is not known, has ended, or its secret is another one", code="wrong-credentials"
        )
    services.rates.check(found.user_id)
    if not keypairs.use_is_noted(found, now):
        await services.database.write(lambda c: keypairs.note_use(c, found, now))
    return Login(standing.by(found), None)


LoggedIn = Annotated[Login, Depends(_login)]


async def _user(login: LoggedIn) -> Principal:
    return login.principal


async def _claims(login: LoggedIn) -> Claims:
    if login.claims is None:
        raise NotAllowed("this needs a login by password, not a keypair", code="keypair-scope")
    return login.claims


def needs(action: Action) -> Any:
    """A dependency: the principal, who may do this to what is its own or everybody's."""

    async def allowed(login: LoggedIn) -> Principal:
        require(login.principal, action)
        return login.principal

    return Depends(allowed)


User = Annotated[Principal, Depends(_user)]
"""Anybody who is logged in; what they may see is looked at where they look."""
ByPassword = Annotated[Claims, Depends(_claims)]
Submitter = Annotated[Principal, needs(Action.SUBMIT)]
IdempotencyHeader = Annotated[
    IdempotencyKey | None,
    Header(
        alias="Idempotency-Key",
        description="A word of the client's own: the same request again gets the same answer and doubles no work",
    ),
]


async def find_workload(
    services: Services,
    principal: Principal,
    ref: str,
    *,
    action: Action = Action.SEE_WORK,
    kind: str | None = None,
) -> WorkloadRow:
    """The workload that an id or a name means to this user, to do this to it. A name means one's own."""
    found: WorkloadRow | None = None
    workload_id = as_id(ref)
    if workload_id is not None:
        async with services.database.read() as connection:
            found = await views.by_id(connection, workload_id)
    elif is_name(ref):
        async with services.database.read() as connection:
            found = await views.by_name(connection, ref, user_id=principal.user_id)
    what = f"{kind or 'workload'} {ref[:63]!r}"
    if found is None or (kind is not None and found.kind != kind):
        raise not_there(what)
    require_seen(principal, action, found.target, what)
    return found


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def named(what: str, name: str) -> str:
    """The name as it came in a path; what cannot be a name names nothing."""
    if not is_name(name):
        raise not_there(f"{what} {name[:63]!r}")
    return name


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except InvalidInput:
        return False
    return True
