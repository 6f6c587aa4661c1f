"""Placement revisions: a pool's counter of commits that placed something, for constraints between tasks to rely on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store import events
from mooring.store.sets import Statement, Writes
from mooring.store.types import as_uuid

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
)


class Revision(NamedTuple):
    pool_id: UUID
    pool: str
    number: int
    paused: bool


async def lock(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Revision]:
    """The revisions of these pools, which nobody else raises until the transaction ends; locked after workloads."""
    return await _revisions(connection, _LOCK, names)


async def read(connection: AsyncConnection, names: Iterable[str]) -> dict[str, Revision]:
    """As `lock`, except that somebody may raise them before `increase` is written, which is refused then."""
    return await _revisions(connection, _READ, names)


def increase(writes: Writes, found: Sequence[Revision], now: datetime, term: int | None) -> dict[str, int]:
    """Something is placed in these pools, which have these revisions and go on, or NotAsExpected; their new ones."""
    if found:
        writes.add(_INCREASE, [(revision.pool_id, revision.number) for revision in found], expected=len(found))
        told = [events.NewEvent("pool", revision.pool_id, revision.number + 1, events.PLACED) for revision in found]
        events.tell(writes, told, now, term)
    return {revision.pool: revision.number + 1 for revision in found}


async def _revisions(connection: AsyncConnection, statement: Statement, names: Iterable[str]) -> dict[str, Revision]:
    wanted = [(name,) for name in names]
    rows = await statement.read(connection, wanted) if wanted else ()
    return {name: Revision(as_uuid(pool_id), name, number, bool(paused)) for pool_id, name, number, paused in rows}
