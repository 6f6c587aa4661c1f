"""Placement revisions: a pool's counter of commits that placed something, for constraints between tasks to rely on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store import events
from mooring.store.tables import pools


class Revision(NamedTuple):
    pool_id: UUID
    pool: str
    number: int


async def lock(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Revision]:
    """The revisions of these pools, which nobody else raises until the transaction ends; locked after workloads."""
    rows = await connection.execute(
        select(pools.c.id, pools.c.name, pools.c.placement_revision)
        .where(pools.c.name.in_(sorted(names)))
        .order_by(pools.c.id)
        .with_for_update(key_share=True)
    )
    return {row.name: Revision(*row) for row in rows}


async def increase(
    connection: AsyncConnection, found: Sequence[Revision], now: datetime, term: int | None
) -> dict[str, int]:
    """Something was placed in these pools; their new revisions."""
    if not found:
        return {}
    await connection.execute(
        update(pools)
        .where(pools.c.id.in_([revision.pool_id for revision in found]))
        .values(placement_revision=pools.c.placement_revision + 1)
    )
    told = [events.NewEvent("pool", revision.pool_id, revision.number + 1, "placed") for revision in found]
    await events.append(connection, told, now, term)
    return {revision.pool: revision.number + 1 for revision in found}
