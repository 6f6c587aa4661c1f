"""Logins: the principal that a credential stands for at this moment, at the request and as long as it stays open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

from mooring.api.auth.tokens import Claims
from mooring.model.errors import NotAuthenticated
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Connection
from mooring.store.tenancy import keypairs, signing_keys, tenants
from mooring.store.tenancy import logins as stored_logins
from mooring.store.tenancy.keypairs import Keypair
from mooring.store.tenancy.tenants import UserAccount


@dataclass(frozen=True, slots=True)
class Login:
    principal: Principal
    claims: Claims | None
    """None for a login by keypair."""
    noted_at: datetime | None = field(default=None, compare=False)
    """The noted last use of a stored login."""


async def by_token(connection: Connection, claims: Claims) -> Login:
    """The user of a token whose signature was verified; NotAuthenticated where it no longer counts."""
    found = await tenants.account_of_token(connection, claims.user_id, claims.key_id, claims.login_id)
    ended = claims.login_id is not None and found.login_used_at is None
    login = _of_token(claims, found.account, found.key_revoked, ended)
    return replace(login, noted_at=found.login_used_at)


async def by_keypair(connection: Connection, access_key: str, secret: str, now: datetime) -> tuple[Login, Keypair]:
    """The user as the keypair lets it act; NotAuthenticated where the keypair is unknown or over."""
    keypair = await keypairs.verified(connection, access_key, secret, now)
    account = None if keypair is None else await tenants.account(connection, keypair.user_id)
    login = _of_keypair(keypair, account)
    assert keypair is not None
    return login, keypair


async def renewed(
    connection: Connection, logins: Collection[Login], now: datetime
) -> dict[Login, Login | NotAuthenticated]:
    """Each login as it would be now, by the rules of a request; in a few queries, however many there are."""
    accounts = await tenants.accounts(connection, {login.principal.user_id for login in logins})
    access_keys = {login.principal.access_key for login in logins if login.claims is None}
    valid = await keypairs.valid(connection, access_keys, now)
    revoked = await signing_keys.revoked(connection)
    stored = {login.claims.login_id for login in logins if login.claims is not None and login.claims.login_id}
    present = await stored_logins.present(connection, stored)
    found: dict[Login, Login | NotAuthenticated] = {}
    for login in logins:
        account = accounts.get(login.principal.user_id)
        try:
            if login.claims is not None:
                ended = login.claims.login_id is not None and login.claims.login_id not in present
                found[login] = _of_token(login.claims, account, login.claims.key_id in revoked, ended)
            else:
                found[login] = _of_keypair(valid.get(login.principal.access_key), account)
        except NotAuthenticated as problem:
            found[login] = problem
    return found


def _of_token(claims: Claims, account: UserAccount | None, key_revoked: bool, login_ended: bool) -> Login:
    if key_revoked:
        raise NotAuthenticated("the key that signed this token was revoked; log in again", code="token-revoked")
    if login_ended or account is None or not account.active or account.token_epoch != claims.epoch:
        raise NotAuthenticated("this login was revoked; log in again", code="token-revoked")
    return Login(account.principal, claims)


def _of_keypair(keypair: Keypair | None, account: UserAccount | None) -> Login:
    # A keypair that was activated again does not bring back a membership that ended.
    if keypair is None or account is None or not account.active or keypair.project_id not in account.principal.projects:
        raise NotAuthenticated("unknown or inactive keypair, or wrong secret", code="wrong-credentials")
    return Login(account.by(keypair), None)
