"""Logins by password that have not ended. The tokens of a login carry its id, and end when its row is deleted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import not_there
from mooring.store.core.batch_sql import among
from mooring.store.tables import logins, users
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

_NOTED = timedelta(minutes=5)
"""Precision of the last use."""


@dataclass(frozen=True, slots=True)
class StoredLogin:
    id: UUID
    username: str
    address: str | None
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


async def add(
    connection: AsyncConnection, login_id: UUID, user_id: UUID, *, address: str | None, now: datetime, until: datetime
) -> None:
    """Store a login whose token is valid until the given time."""
    values = {"id": login_id, "user_id": user_id, "address": address, "created_at": now, "last_used_at": now}
    await connection.execute(insert(logins).values(**values, expires_at=until))


async def prolong(connection: AsyncConnection, login_id: UUID, *, now: datetime, until: datetime) -> bool:
    """Note that the login got a new token; return False if it has ended."""
    this = update(logins).where(logins.c.id == login_id)
    return (await connection.execute(this.values(last_used_at=now, expires_at=until))).rowcount > 0


def use_is_noted(last_used_at: datetime, now: datetime) -> bool:
    """Return whether the stored last use is recent enough to need no update."""
    return last_used_at > now - _NOTED


async def note_use(connection: AsyncConnection, login_id: UUID, now: datetime) -> None:
    this = (logins.c.id == login_id) & (logins.c.last_used_at <= now - _NOTED)
    await connection.execute(update(logins).where(this).values(last_used_at=now))


async def present(connection: AsyncConnection, ids: Collection[UUID]) -> frozenset[UUID]:
    """Return those of the logins that have not ended."""
    if not ids:
        return frozenset()
    return frozenset((await connection.execute(select(logins.c.id).where(among(logins.c.id, ids)))).scalars())


async def of_user(connection: AsyncConnection, user_id: UUID, now: datetime) -> list[StoredLogin]:
    """Return the logins with a valid token, newest first."""
    found = _LOGINS.where(logins.c.user_id == user_id, logins.c.expires_at > now)
    rows = await connection.execute(found.order_by(logins.c.created_at.desc(), logins.c.id.desc()))
    return [StoredLogin(*row) for row in rows]


async def find(connection: AsyncConnection, login_id: UUID) -> StoredLogin:
    row = (await connection.execute(_LOGINS.where(logins.c.id == login_id))).one_or_none()
    if row is None:
        raise not_there(f"login '{login_id}'")
    return StoredLogin(*row)


async def end(connection: AsyncConnection, login: StoredLogin, *, actor: Actor, now: datetime) -> None:
    """End a login: once committed, no server accepts a token of it."""
    gone = await connection.execute(delete(logins).where(logins.c.id == login.id))
    if gone.rowcount:
        before = {"id": str(login.id), "address": login.address, "created": login.created_at.isoformat()}
        await admin_actions.record(connection, actor, "revoke-login", "user", login.username, now=now, before=before)


async def end_all(connection: AsyncConnection, user_id: UUID) -> int:
    """End the stored logins of a user and return their number. The caller raises the user's token epoch."""
    return (await connection.execute(delete(logins).where(logins.c.user_id == user_id))).rowcount


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete logins whose last token expired before the given time, and return their number."""
    oldest = select(logins.c.id).where(logins.c.expires_at < before).order_by(logins.c.expires_at).limit(limit)
    return (await connection.execute(delete(logins).where(logins.c.id.in_(oldest)))).rowcount


_LOGINS = select(
    logins.c.id, users.c.name, logins.c.address, logins.c.created_at, logins.c.last_used_at, logins.c.expires_at
).join(users, users.c.id == logins.c.user_id)
