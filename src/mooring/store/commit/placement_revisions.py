"""Placement revisions: each pool counts the commits that place tasks, as a version for constraints between tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.control import events
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.types import as_uuid

_POOLS = """
    SELECT p.id, p.name, p.placement_revision, p.options ->> 'paused' IS NOT NULL
    FROM {rows} i JOIN pools p ON p.name = i.name ORDER BY p.id {lock}
"""
_READ = Statement(_POOLS, {"name": "text"})
_LOCK = Statement(_POOLS, {"name": "text"}, lock="FOR NO KEY UPDATE OF p")
_INCREASE = Statement(
    """
    UPDATE pools AS p SET placement_revision = i.number + 1 FROM {rows} i
    WHERE p.id = i.id AND p.placement_revision = i.number AND p.options ->> 'paused' IS NULL
    """,
    {"id": "uuid", "number": "bigint"},
    only="pools",
)


class Revision(NamedTuple):
    pool_id: UUID
    pool: str
    number: int
    paused: bool


async def lock(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Revision]:
    """Return the revisions of these pools, locked until the transaction ends; pools are locked after workloads."""
    return await _revisions(connection, _LOCK, names)


async def read(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Revision]:
    """As `lock`, without locks: `increase` raises NotAsExpected if a revision has changed meanwhile."""
    return await _revisions(connection, _READ, names)


def increase(writes: Writes, found: Sequence[Revision], now: datetime, term: int | None) -> dict[str, int]:
    """Increase these revisions and return the new ones; NotAsExpected if one has changed or its pool is paused."""
    if found:
        writes.add(_INCREASE, [(revision.pool_id, revision.number) for revision in found], expected=len(found))
        new = [events.NewEvent("pool", revision.pool_id, revision.number + 1, events.PLACED) for revision in found]
        events.add(writes, new, now, term)
    return {revision.pool: revision.number + 1 for revision in found}


async def _revisions(connection: AsyncConnection, statement: Statement, names: Iterable[str]) -> dict[str, Revision]:
    wanted = [(name,) for name in names]
    rows = await statement.read(connection, wanted) if wanted else ()
    return {name: Revision(as_uuid(pool_id), name, number, bool(paused)) for pool_id, name, number, paused in rows}
