"""Logging in, staying logged in, and changing one's password."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response

from mooring.api.access import ByPassword, Served, User
from mooring.api.errors import problems
from mooring.api.services import Services
from mooring.api.showing import user_view
from mooring.api.throttle import account_key, address_key
from mooring.api.tokens import Claims
from mooring.model.errors import NotAllowed, NotAuthenticated
from mooring.store import keypairs, users
from mooring.store.users import Credentials
from mooring.wire.api import LoginRequest, PasswordChange, Token, UserView

router = APIRouter(prefix="/api/auth", tags=["auth"], responses=problems())


@router.post("/login", operation_id="login", responses=problems(400, 401, 413, 422, 503))
async def login(services: Served, login: LoginRequest, request: Request, response: Response) -> Token:
    """Exchange a username and password for a token."""
    found = await _verified(services, login.username, login.password, request)
    if found is None:
        raise NotAuthenticated("the username or the password is wrong", code="wrong-credentials")
    if not found.active:
        raise NotAuthenticated("this user is deactivated; ask an admin", code="user-inactive")
    return _token(services, Claims(found.user_id, found.token_epoch, services.now()), response)


@router.post("/renew", operation_id="renew", responses=problems(401, 403, 503))
async def renew(services: Served, claims: ByPassword, response: Response) -> Token:
    """A fresh token for one that is still valid, until the login by password is seven days ago."""
    return _token(services, claims, response)


@router.post("/password", operation_id="change_password", responses=problems(400, 401, 403, 409, 413, 422, 503))
async def change_password(
    services: Served,
    principal: User,
    _claims: ByPassword,
    change: PasswordChange,
    request: Request,
    response: Response,
) -> Token:
    """Change one's password. It ends every token of the user; the answer is a new one."""
    found = await _verified(services, principal.username, change.old_password, request)
    if found is None:
        raise NotAllowed("the old password is wrong", code="wrong-credentials")
    new_hash = await services.passwords.hash(change.new_password)
    epoch = await services.database.write(
        lambda c: users.change_password(c, principal.user_id, old_hash=found.password_hash, new_hash=new_hash)
    )
    return _token(services, Claims(principal.user_id, epoch, services.now()), response)


@router.get("/me", operation_id="me", responses=problems(401, 503))
async def me(services: Served, principal: User) -> UserView:
    """Whom the token or the keypair belongs to; with a keypair the project is the keypair's."""
    async with services.database.read() as connection:
        user = await users.find(connection, principal.username)
        if principal.by_keypair:
            user = replace(user, project=(await keypairs.find(connection, principal.access_key)).project)
    return user_view(user)


async def _verified(services: Services, username: str, password: str, request: Request) -> Credentials | None:
    """The user's credentials if the password is right; guessing gets slower and slower."""
    account = account_key(username)
    address = address_key(request.client.host if request.client else None)

    def still_allowed() -> None:
        services.throttle.check(account, address)

    still_allowed()
    async with services.database.read() as connection:
        found = await users.credentials(connection, username)
    password_hash = found.password_hash if found is not None else None
    if not await services.passwords.verify(password_hash, password, still_allowed=still_allowed):
        services.throttle.failed(account, address)
        return None
    services.throttle.succeeded(account)
    return found


def _token(services: Services, claims: Claims, response: Response) -> Token:
    signed = services.tokens.issue(claims)
    response.headers["Cache-Control"] = "no-store"
    return Token(access_token=signed.text, expires_in=signed.expires_in_seconds)
