"""Logins by password, one's own or, for admins, those of others: list them and end them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import ByPassword, LoggedIn, Served, User, as_id
from mooring.api.lookup.tenants import find_user
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import Action, not_there, require_visible
from mooring.store.core.engine import Connection
from mooring.store.tenancy import logins, users
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.fields import Name
from mooring.wire.tenancy.users import LoginView

router = APIRouter(prefix="/api/logins", tags=["auth"], responses=problems(401, 403, 404, 422, 503))

CURRENT = "current"

OfUser = Annotated[Name | None, Query(description="Of one user; one's own if not given")]


@router.get("", operation_id="list_logins")
async def list_logins(services: Served, login: LoggedIn, user: OfUser = None) -> list[LoginView]:
    """Logins by password that have not ended, newest first."""
    principal, claims = login.principal, login.claims
    async with services.database.read() as connection:
        found = await find_user(connection, principal, user or principal.username, Action.SEE_LOGIN)
        stored = await logins.of_user(connection, found.id, services.now())
    return [
        LoginView(
            id=each.id,
            user=each.username,
            address=each.address,
            created_at=each.created_at,
            last_used_at=each.last_used_at,
            expires_at=each.expires_at,
            current=claims is not None and claims.login_id == each.id,
        )
        for each in stored
    ]


@router.delete("", status_code=204, operation_id="end_all_logins")
async def end_all_logins(services: Served, principal: User, _claims: ByPassword, user: OfUser = None) -> None:
    """End all logins of a user, including that of this request. Keypairs stay valid."""

    async def work(connection: Connection) -> None:
        found = await find_user(connection, principal, user or principal.username, Action.END_LOGIN)
        await users.end_logins(connection, found, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)


@router.delete("/{login_id}", status_code=204, operation_id="end_login")
async def end_login(services: Served, principal: User, claims: ByPassword, login_id: str) -> None:
    """End a login: no server accepts its tokens any more. `current` is the login of this request."""
    wanted = claims.login_id if login_id == CURRENT else as_id(login_id)
    if wanted is None:
        raise not_there(f"login {login_id[:40]!r}")

    async def work(connection: Connection) -> None:
        found = await logins.find(connection, wanted)
        owner = await users.find(connection, found.username)
        require_visible(principal, Action.END_LOGIN, owner.target, f"login '{wanted}'")
        await logins.end(connection, found, actor=Actor.of(principal), now=services.now())

    await services.database.write(work)
