"""Which signing keys the servers of this database share. Only their ids are known here, never the keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.inserts import insert_new
from mooring.store.tables import signing_keys


async def register(connection: AsyncConnection, ids: Sequence[str], now: datetime) -> list[str]:
    """Make a server's key ids known and return []; or the ids that the others share if it has none of them.

    The first server's ids are taken as they are. A server that shares one key may bring new ones: that is a rotation.
    """
    if connection.dialect.name == "postgresql":
        # Two first servers with different keys must not both find the table empty.
        await connection.execute(text("LOCK TABLE signing_keys IN EXCLUSIVE MODE"))
    known = list((await connection.execute(select(signing_keys.c.id).order_by(signing_keys.c.created_at))).scalars())
    if known and not set(known) & set(ids):
        return known
    for key_id in ids:
        if key_id not in known:
            await insert_new(connection, signing_keys, {"id": key_id, "created_at": now})
    return []
