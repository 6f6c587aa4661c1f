"""Terms of leadership. A term only grows; each transaction of the leader first checks that its own is current.

A term is one more than the last, and at least the second it begins in. So it also grows where the last one is not
known any more, in a database that was restored: no term is ever issued twice, and agents that followed a later one than
the restored database knows follow the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import LeadershipLost
from mooring.store.inserts import insert_new
from mooring.store.sets import Statement
from mooring.store.tables import leadership, leadership_lease

_ROW = 1
_FROZEN_SECONDS = 1
_NOBODY = ""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_CURRENT = select(leadership.c.term).where(leadership.c.id == _ROW)
_LOCK_TERM = Statement(
    "SELECT l.term, l.holder FROM {rows} i JOIN leadership l ON l.id = i.id {lock}",
    {"id": "bigint"},
    lock="FOR SHARE OF l",
)


@dataclass(frozen=True, slots=True)
class Term:
    """Of the last one to take office."""

    number: int
    holder: str
    taken_at: datetime | None
    kind: str | None
    """Of coordination: `alone`, `database` or `etcd`."""


async def take_office(
    connection: AsyncConnection,
    holder: str,
    now: datetime,
    *,
    kind: str = "alone",
    cluster: str | None = None,
    revision: int | None = None,
) -> int:
    """A new term for `holder`; whoever led before can commit nothing more. The rest says what the seat was won with."""
    if connection.dialect.name == "postgresql":
        await _end_predecessor(connection, holder)
    won = {"holder": holder, "taken_at": now, "kind": kind, "cluster": cluster, "revision": revision}
    second = int(now.timestamp())
    if await insert_new(connection, leadership, {"id": _ROW, "term": second, **won}):
        return second
    found = await connection.execute(select(leadership.c.term).where(leadership.c.id == _ROW).with_for_update())
    term = max(int(found.scalar_one()) + 1, second)
    await connection.execute(update(leadership).where(leadership.c.id == _ROW).values(term=term, **won))
    return term


async def _end_predecessor(connection: AsyncConnection, holder: str) -> None:
    """A leader that froze in the middle of a commit keeps its term locked: its transactions of that age are ended.

    One that is not that old yet makes the caller's transaction fail soon, and be tried again.
    """
    await connection.execute(select(func.set_config("lock_timeout", f"{_FROZEN_SECONDS}s", True)))
    await connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, leadership"
            " WHERE leadership.id = :row AND leadership.holder <> :holder"
            " AND application_name = left(leadership.holder, 63) AND datname = current_database()"
            " AND xact_start < clock_timestamp() - make_interval(secs => :seconds)"
        ),
        {"row": _ROW, "holder": holder, "seconds": _FROZEN_SECONDS},
    )


async def depose(connection: AsyncConnection) -> None:
    """Nobody leads: whoever did can commit nothing more, and may take office again. Terms are counted on."""
    await connection.execute(update(leadership).values(term=leadership.c.term + 1, holder=_NOBODY))
    await connection.execute(delete(leadership_lease))


async def check_term(connection: AsyncConnection, term: int) -> None:
    """The first statement of every transaction that the leader commits."""
    found = await _LOCK_TERM.read(connection, [(_ROW,)])
    newest, holder = found[0] if found else (None, None)
    if newest != term:
        newer = f"term {newest} is held by {holder}" if holder else "nobody holds office"
        raise LeadershipLost(f"this scheduler's term {term} is over: {newer}")


async def current_term(connection: AsyncConnection) -> int:
    found = (await connection.execute(_CURRENT)).scalar_one_or_none()
    return int(found or 0)


async def latest(connection: AsyncConnection) -> Term | None:
    """None where nobody ever led, or the last one was deposed."""
    row = leadership.c
    found = await connection.execute(
        select(row.term, row.holder, row.taken_at, row.kind).where(row.id == _ROW, row.holder != _NOBODY)
    )
    newest = found.one_or_none()
    return None if newest is None else Term(*newest)


async def lease(connection: AsyncConnection, holder: str, seconds: float) -> bool:
    """Have the seat for so long by the database's clock, if it is free, expired or one's own."""
    row = leadership_lease.c
    now = func.clock_timestamp()
    await insert_new(connection, leadership_lease, {"id": _ROW, "holder": None, "until": _LONG_AGO})
    taken = await connection.execute(
        update(leadership_lease)
        .where(row.id == _ROW, or_(row.holder.is_(None), row.holder == holder, row.until < now))
        .values(holder=holder, until=now + literal(timedelta(seconds=seconds)))
    )
    return taken.rowcount == 1


async def renew(connection: AsyncConnection, holder: str, seconds: float) -> bool:
    """False if somebody else has the seat by now."""
    until = func.clock_timestamp() + literal(timedelta(seconds=seconds))
    renewed = await connection.execute(
        update(leadership_lease)
        .where(leadership_lease.c.id == _ROW, leadership_lease.c.holder == holder)
        .values(until=until)
    )
    return renewed.rowcount == 1


async def release(connection: AsyncConnection, holder: str) -> None:
    await connection.execute(
        update(leadership_lease)
        .where(leadership_lease.c.id == _ROW, leadership_lease.c.holder == holder)
        .values(holder=None)
    )
