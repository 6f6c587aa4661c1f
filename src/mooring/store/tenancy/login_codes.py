"""One-time login codes: each opens one login of one user, once and within minutes. Only hashes are stored."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.tables import domains, login_codes, logins, users

LIFETIME = timedelta(minutes=10)
MAX_PER_USER = 10
_CODE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Redeemed:
    user_id: UUID
    username: str
    active: bool
    """A user of an inactive domain is inactive."""
    token_epoch: int
    auth_time: datetime
    """Time of the login by password that the code was created with."""


async def add(
    connection: AsyncConnection,
    user_id: UUID,
    *,
    login_id: UUID | None,
    token_epoch: int,
    auth_time: datetime,
    now: datetime,
) -> str:
    """Return a new code. It ends with the login and with the tokens that it was created with.

    A user has at most MAX_PER_USER codes: the oldest ones end.
    """
    newest = select(login_codes.c.code_hash).where(login_codes.c.user_id == user_id)
    newest = newest.order_by(login_codes.c.expires_at.desc()).limit(MAX_PER_USER - 1)
    remaining = list((await connection.execute(newest)).scalars())
    others = (login_codes.c.user_id == user_id) & login_codes.c.code_hash.not_in(remaining)
    await connection.execute(delete(login_codes).where(others))
    code = secrets.token_urlsafe(_CODE_BYTES)
    await connection.execute(
        insert(login_codes).values(
            code_hash=_hash(code),
            user_id=user_id,
            login_id=login_id,
            token_epoch=token_epoch,
            auth_time=auth_time,
            expires_at=now + LIFETIME,
        )
    )
    return code


async def redeem(connection: AsyncConnection, code: str, now: datetime) -> Redeemed | None:
    """Delete a code and return its login; None if the code is unknown, expired or revoked."""
    taken = (
        await connection.execute(
            delete(login_codes)
            .where(login_codes.c.code_hash == _hash(code))
            .returning(
                login_codes.c.user_id,
                login_codes.c.login_id,
                login_codes.c.token_epoch,
                login_codes.c.auth_time,
                login_codes.c.expires_at,
            )
        )
    ).one_or_none()
    if taken is None or taken.expires_at <= now:
        return None
    if taken.login_id is not None:
        present = await connection.execute(select(logins.c.id).where(logins.c.id == taken.login_id))
        if present.one_or_none() is None:
            return None
    user = (
        await connection.execute(
            select(users.c.name, (users.c.active & domains.c.active).label("active"), users.c.token_epoch)
            .join(domains, domains.c.id == users.c.domain_id)
            .where(users.c.id == taken.user_id)
        )
    ).one()
    if user.token_epoch != taken.token_epoch:
        return None
    return Redeemed(taken.user_id, user.name, bool(user.active), user.token_epoch, taken.auth_time)


async def token_epoch(connection: AsyncConnection, user_id: UUID) -> int:
    """Return the epoch that codes of the user are created with when no token is at hand."""
    return int((await connection.execute(select(users.c.token_epoch).where(users.c.id == user_id))).scalar_one())


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete codes that expired before the given time, and return their number."""
    oldest = select(login_codes.c.code_hash).where(login_codes.c.expires_at < before).limit(limit)
    return (await connection.execute(delete(login_codes).where(login_codes.c.code_hash.in_(oldest)))).rowcount


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "backslashreplace")).hexdigest()
