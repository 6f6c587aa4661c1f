"""Logging in, staying logged in, and changing one's password."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from fastapi import APIRouter, Request, Response

from mooring.api.auth.request_access import ByPassword, Served, User
from mooring.api.auth.tokens import Claims
from mooring.api.middleware.client_address import client_address
from mooring.api.middleware.errors import problems
from mooring.api.serializers import user_view
from mooring.api.services import Services
from mooring.model.errors import NotAllowed, NotAuthenticated, Unavailable
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.tenancy import keypairs, login_codes, logins, signing_keys, users
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.users import Credentials
from mooring.wire.tenancy.users import LoginCode, LoginRequest, PasswordChange, RedeemRequest, Token, UserView

_KNOWN_ADDRESS = timedelta(days=30)
"""An account that is under attack still lets in the addresses that it was used from within this time."""

router = APIRouter(prefix="/api/auth", tags=["auth"], responses=problems())


@router.post("/login", operation_id="login", responses=problems(401, 422, 503))
async def login(services: Served, login: LoginRequest, request: Request, response: Response) -> Token:
    """Exchange a username and password for a token."""
    found = await _verified(services, login.username, login.password, request)
    if found is None:
        raise NotAuthenticated("the username or the password is wrong", code="wrong-credentials")
    address = client_address(request.scope)
    if not found.active:
        await services.login_records.failed(login.username, found, address, services.now())
        raise NotAuthenticated("this user is deactivated; ask an admin", code="user-inactive")
    await services.login_records.succeeded(login.username, found, address, services.now())
    return await _new_login(services, found.user_id, found.token_epoch, address, response)


@router.post("/codes", operation_id="create_login_code", status_code=201, responses=problems(401, 403, 503))
async def create_code(services: Served, principal: User, claims: ByPassword, response: Response) -> LoginCode:
    """Create a code that logs the caller in once, within ten minutes, such as in a browser: `/login#code=CODE`."""

    async def work(connection: Connection) -> str:
        return await login_codes.add(
            connection,
            principal.user_id,
            login_id=claims.login_id,
            token_epoch=claims.epoch,
            auth_time=claims.auth_time,
            now=services.now(),
        )

    code = await services.database.write(work, notify=False)
    response.headers["Cache-Control"] = "no-store"
    return LoginCode(code=code, expires_in=int(login_codes.LIFETIME.total_seconds()))


@router.post("/redeem", operation_id="redeem_login_code", responses=problems(401, 422, 503))
async def redeem(services: Served, request: RedeemRequest, http: Request, response: Response) -> Token:
    """Exchange a one-time code for a token. The token can be renewed as long as that of the login behind the code."""
    address, at = client_address(http.scope), services.now()
    with services.throttle.attempt(address):
        services.throttle.check_address(address)
        found = await services.database.write(lambda c: login_codes.redeem(c, request.code, at), notify=False)
        if found is None:
            services.throttle.failed_address(address)
            await services.login_records.failed("", None, address, at)
            raise NotAuthenticated(
                "this login link was used already, has expired or was revoked; `mooring console` creates another one",
                code="wrong-code",
            )
    credentials = Credentials(found.user_id, found.active, found.token_epoch, None)
    if not found.active:
        await services.login_records.failed(found.username, credentials, address, at)
        raise NotAuthenticated("this user is deactivated; ask an admin", code="user-inactive")
    await services.login_records.succeeded(found.username, credentials, address, at)
    return await _new_login(services, found.user_id, found.token_epoch, address, response, auth_time=found.auth_time)


@router.post("/renew", operation_id="renew", responses=problems(401, 403, 503))
async def renew(services: Served, claims: ByPassword, response: Response) -> Token:
    """Renew a valid token, up to seven days after the login by password."""
    token = await _token(services, claims, response)
    login_id, at = claims.login_id, services.now()
    if login_id is not None:
        until = at + timedelta(seconds=token.expires_in)
        if not await services.database.write(lambda c: logins.prolong(c, login_id, now=at, until=until), notify=False):
            raise NotAuthenticated("this login was ended; log in again", code="token-revoked")
    return token


@router.post("/password", operation_id="change_password", responses=problems(401, 403, 409, 422, 503))
async def change_password(
    services: Served,
    principal: User,
    _claims: ByPassword,
    change: PasswordChange,
    request: Request,
    response: Response,
) -> Token:
    """Change the caller's password. The response has a new token.

    All other tokens end, and with `revoke_keypairs` all keypairs that have a secret.
    """
    found = await _verified(services, principal.username, change.old_password, request)
    if found is None:
        raise NotAllowed("the old password is wrong", code="wrong-credentials")
    new_hash = await services.passwords.hash(change.new_password)

    async def work(connection: Connection) -> int:
        return await users.change_password(
            connection,
            principal.user_id,
            old_hash=found.password_hash,
            new_hash=new_hash,
            revoke_keypairs=change.revoke_keypairs,
            actor=Actor.of(principal),
            now=services.now(),
        )

    epoch = await services.database.write(work)
    return await _new_login(services, principal.user_id, epoch, principal.address, response)


@router.get("/me", operation_id="me", responses=problems(401, 503))
async def me(services: Served, principal: User) -> UserView:
    """Return the user of the token or keypair. With a keypair, the project is that of the keypair."""
    async with services.database.read() as connection:
        user = await users.find(connection, principal.username)
        if principal.by_keypair:
            user = replace(user, project=(await keypairs.find(connection, principal.access_key)).project)
    return user_view(user)


async def _verified(services: Services, username: str, password: str, request: Request) -> Credentials | None:
    """The user's credentials if the password is right; guessing gets slower and slower, and leaves records."""
    address = client_address(request.scope)
    throttle, records = services.throttle, services.login_records
    known = False
    if throttle.is_attacked(username):
        known = await records.known_address(username, address, services.now() - _KNOWN_ADDRESS)

    def still_allowed() -> None:
        throttle.check(username, address)
        if not known:
            throttle.check_account(username)

    with throttle.attempt(address):
        still_allowed()
        async with services.database.read() as connection:
            found = await users.credentials(connection, username)
        password_hash = found.password_hash if found is not None else None
        if not await services.passwords.verify(password_hash, password, still_allowed=still_allowed):
            throttle.failed(username, address)
            await records.failed(username, found, address, services.now())
            return None
    throttle.succeeded(username, address)
    return found


async def _new_login(
    services: Services,
    user_id: UUID,
    epoch: int,
    address: str | None,
    response: Response,
    *,
    auth_time: datetime | None = None,
) -> Token:
    """Return the first token of a login, which is stored so that it can be listed and ended."""
    login_id, at = new_id(), services.now()
    token = await _token(services, Claims(user_id, epoch, auth_time or at, login_id=login_id), response)
    until = at + timedelta(seconds=token.expires_in)
    await services.database.write(
        lambda c: logins.add(c, login_id, user_id, address=address, now=at, until=until), notify=False
    )
    return token


async def _token(services: Services, claims: Claims, response: Response) -> Token:
    async with services.database.read() as connection:
        if services.tokens.key_id in await signing_keys.revoked(connection):
            raise Unavailable(
                "nobody can log in here: the signing key of this server was revoked; an operator runs `mooring keys"
                " rotate` and restarts the server",
                code="signing-key-revoked",
            )
    signed = services.tokens.issue(claims)
    response.headers["Cache-Control"] = "no-store"
    return Token(access_token=signed.text, expires_in=signed.expires_in_seconds)
