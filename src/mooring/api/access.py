"""Who asks, and what of it they may see: the dependencies that the routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast
from uuid import UUID

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from mooring.api.services import Services
from mooring.api.tokens import Claims
from mooring.model.errors import InvalidInput, NotAllowed, NotAuthenticated, NotFound
from mooring.model.names import check_name
from mooring.model.tenants import Principal
from mooring.store import tenants
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WorkloadRow
from mooring.wire.fields import IdempotencyKey

_bearer = HTTPBearer(
    scheme_name="token",
    bearerFormat="JWT",
    description="The `access_token` that `POST /api/auth/login` answers with.",
    auto_error=False,
)


@dataclass(frozen=True, slots=True)
class Login:
    principal: Principal
    claims: Claims


def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Served = Annotated[Services, Depends(_services)]


async def _login(
    services: Served,
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Login:
    try:
        login = await _verified(services, credentials)
    except NotAuthenticated:
        if credentials is not None:
            # Those that show none were counted at the door.
            services.rates.address(request.client.host if request.client else None)
        raise
    services.rates.request(login.principal)
    return login


async def _verified(services: Services, credentials: HTTPAuthorizationCredentials | None) -> Login:
    if credentials is None:
        raise NotAuthenticated("log in first: this needs the header 'Authorization: Bearer <token>'")
    claims = services.tokens.verify(credentials.credentials)
    services.rates.check(claims.user_id)
    async with services.database.read() as connection:
        standing = await tenants.standing(connection, claims.user_id)
    if standing is None or not standing.active or standing.token_epoch != claims.epoch:
        raise NotAuthenticated("this login was ended; log in again", code="token-revoked")
    return Login(standing.principal, claims)


LoggedIn = Annotated[Login, Depends(_login)]


def _user(login: LoggedIn) -> Principal:
    return login.principal


def _admin(login: LoggedIn) -> Principal:
    if not login.principal.is_admin:
        raise NotAllowed("only an admin may do this")
    return login.principal


User = Annotated[Principal, Depends(_user)]
IdempotencyHeader = Annotated[
    IdempotencyKey | None,
    Header(
        alias="Idempotency-Key",
        description="A word of the client's own: the same request again gets the same answer and doubles no work",
    ),
]
Admin = Annotated[Principal, Depends(_admin)]


async def find_workload(services: Services, principal: Principal, ref: str, *, kind: str | None = None) -> WorkloadRow:
    """The workload that an id or a name means to this user. Those of others do not exist, except to an admin by id."""
    found: WorkloadRow | None = None
    workload_id = as_id(ref)
    if workload_id is not None:
        owner = None if principal.is_admin else principal.user_id
        async with services.database.read() as connection:
            found = await views.by_id(connection, workload_id, user_id=owner)
    elif is_name(ref):
        async with services.database.read() as connection:
            found = await views.by_name(connection, ref, user_id=principal.user_id)
    if found is None or (kind is not None and found.kind != kind):
        raise NotFound(f"there is no {kind or 'workload'} {ref[:63]!r}")
    return found


def as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except InvalidInput:
        return False
    return True
