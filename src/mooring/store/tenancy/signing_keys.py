"""Ids of the signing keys that the servers of this database share. The keys themselves are never stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import not_there
from mooring.store.core.inserts import insert_new
from mooring.store.tables import signing_keys
from mooring.store.tenancy import admin_actions


@dataclass(frozen=True, slots=True)
class KnownKey:
    id: str
    created_at: datetime
    revoked_at: datetime | None


async def revoked(connection: AsyncConnection) -> frozenset[str]:
    found = await connection.execute(select(signing_keys.c.id).where(signing_keys.c.revoked_at.is_not(None)))
    return frozenset(found.scalars())


async def every(connection: AsyncConnection) -> list[KnownKey]:
    """Return all known keys, newest first."""
    found = await connection.execute(select(signing_keys).order_by(signing_keys.c.created_at.desc(), signing_keys.c.id))
    return [KnownKey(row.id, row.created_at, row.revoked_at) for row in found]


async def revoke(connection: AsyncConnection, key_id: str, now: datetime) -> None:
    """Revoke a key: once committed, no server accepts a token that it signed. Idempotent."""
    this = signing_keys.c.id == key_id
    if (await connection.execute(select(signing_keys.c.id).where(this))).first() is None:
        raise not_there(f"signing key {key_id[:40]!r}")
    changed = await connection.execute(
        update(signing_keys).where(this, signing_keys.c.revoked_at.is_(None)).values(revoked_at=now)
    )
    if changed.rowcount:
        await admin_actions.record(connection, admin_actions.SERVER, "revoke", "signing-key", key_id, now=now)


async def register(connection: AsyncConnection, ids: Sequence[str], now: datetime) -> list[str]:
    """Register a server's key ids and return []; if it shares no key with the others, return their ids instead.

    The first server's ids are accepted unconditionally. A server that shares one key may add others: a rotation.
    """
    if connection.dialect.name == "postgresql":
        # Two servers with different keys that start first must not both see an empty table.
        await connection.execute(text("LOCK TABLE signing_keys IN EXCLUSIVE MODE"))
    known = list((await connection.execute(select(signing_keys.c.id).order_by(signing_keys.c.created_at))).scalars())
    if known and not set(known) & set(ids):
        return known
    for key_id in ids:
        if key_id not in known:
            await insert_new(connection, signing_keys, {"id": key_id, "created_at": now})
    return []
