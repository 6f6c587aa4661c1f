"""Terms of leadership. A term only grows; each transaction of the leader first checks that its own is current."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import LeadershipLost
from mooring.store.inserts import insert_new
from mooring.store.tables import leadership

_ROW = 1


async def take_office(connection: AsyncConnection, holder: str, now: datetime) -> int:
    """A new term for `holder`; whoever led before can commit nothing more."""
    if await insert_new(connection, leadership, {"id": _ROW, "term": 1, "holder": holder, "taken_at": now}):
        return 1
    found = await connection.execute(select(leadership.c.term).where(leadership.c.id == _ROW).with_for_update())
    term = int(found.scalar_one()) + 1
    await connection.execute(
        update(leadership).where(leadership.c.id == _ROW).values(term=term, holder=holder, taken_at=now)
    )
    return term


async def check_term(connection: AsyncConnection, term: int) -> None:
    """The first statement of every transaction that the leader commits."""
    found = (
        await connection.execute(
            select(leadership.c.term, leadership.c.holder).where(leadership.c.id == _ROW).with_for_update(read=True)
        )
    ).one_or_none()
    if found is None or found.term != term:
        newer = f"term {found.term} is held by {found.holder}" if found else "nobody holds office"
        raise LeadershipLost(f"this scheduler's term {term} is over: {newer}")


async def current_term(connection: AsyncConnection) -> int:
    found = (await connection.execute(select(leadership.c.term).where(leadership.c.id == _ROW))).scalar_one_or_none()
    return int(found or 0)
