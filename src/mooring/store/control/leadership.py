"""Leader terms. Each transaction of the leader first checks that its term is the current one.

A term is one more than the last, and at least the current time in seconds. So terms also grow after a restore from a
backup, in which the last terms are missing: no term is issued twice, and agents that followed a term later than those
in the backup accept the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import LeadershipLost
from mooring.store.core.batch_sql import Statement
from mooring.store.core.inserts import insert_new
from mooring.store.core.sqlite import defer
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
    """The most recent leader term."""

    number: int
    holder: str
    taken_at: datetime | None
    kind: str | None
    """Kind of election: `alone`, `database` or `etcd`."""


async def start_term(
    connection: AsyncConnection,
    holder: str,
    now: datetime,
    *,
    kind: str = "alone",
    cluster: str | None = None,
    revision: int | None = None,
) -> int:
    """Start a new term for `holder` and return its number; the previous leader can commit nothing more.

    The other arguments record how the election was won.
    """
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
    """Terminate transactions of the previous leader that have been open for too long and lock its term.

    If one is not that old yet, the transaction of the caller fails soon and is retried.
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
    """End the current term without a new one: its leader can commit nothing more, but may be elected again."""
    await connection.execute(update(leadership).values(term=leadership.c.term + 1, holder=_NOBODY))
    await connection.execute(delete(leadership_lease))


async def check_term(connection: AsyncConnection, term: int) -> None:
    """Raise LeadershipLost unless this is the current term."""
    _require(term, await _LOCK_TERM.read(connection, [(_ROW,)]))


async def fence(connection: AsyncConnection, term: int) -> None:
    """As `check_term`, as the first statement of a transaction of the leader; on SQLite together with its next one."""
    if connection.dialect.name == "sqlite":
        defer(connection, lambda opened: _require(term, _LOCK_TERM.read_in_thread(opened, [(_ROW,)])))
    else:
        await check_term(connection, term)


def _require(term: int, found: Sequence[Sequence[Any]]) -> None:
    newest, holder = found[0] if found else (None, None)
    if newest != term:
        newer = f"term {newest} is held by {holder}" if holder else "there is no leader"
        raise LeadershipLost(f"this scheduler's term {term} is over: {newer}")


async def current_term(connection: AsyncConnection) -> int:
    found = (await connection.execute(_CURRENT)).scalar_one_or_none()
    return int(found or 0)


async def latest(connection: AsyncConnection) -> Term | None:
    """Return the current term; None if there was never a leader, or the last one was deposed."""
    row = leadership.c
    found = await connection.execute(
        select(row.term, row.holder, row.taken_at, row.kind).where(row.id == _ROW, row.holder != _NOBODY)
    )
    newest = found.one_or_none()
    return None if newest is None else Term(*newest)


async def lease(connection: AsyncConnection, holder: str, seconds: float) -> bool:
    """Take or extend the lease by the clock of the database; return False while another server holds it."""
    row = leadership_lease.c
    now = func.clock_timestamp()
    await insert_new(connection, leadership_lease, {"id": _ROW, "holder": None, "until": _LONG_AGO})
    taken = await connection.execute(
        update(leadership_lease)
        .where(row.id == _ROW, or_(row.holder.is_(None), row.holder == holder, row.until < now))
        .values(holder=holder, until=now + literal(timedelta(seconds=seconds)), reason=None)
    )
    return taken.rowcount == 1


async def renew(connection: AsyncConnection, holder: str, seconds: float) -> bool:
    """Extend the lease; return False if another server holds it."""
    until = func.clock_timestamp() + literal(timedelta(seconds=seconds))
    renewed = await connection.execute(
        update(leadership_lease)
        .where(leadership_lease.c.id == _ROW, leadership_lease.c.holder == holder)
        .values(until=until)
    )
    return renewed.rowcount == 1


async def release(connection: AsyncConnection, holder: str, reason: str) -> None:
    """Release the lease; `reason` is stored to explain why there is no leader."""
    await connection.execute(
        update(leadership_lease)
        .where(leadership_lease.c.id == _ROW, leadership_lease.c.holder == holder)
        .values(holder=None, until=func.clock_timestamp(), reason=reason)
    )


@dataclass(frozen=True, slots=True)
class Vacancy:
    """The absence of a leader."""

    since: datetime | None
    """None: there has never been a leader."""
    reason: str


async def vacancy(connection: AsyncConnection) -> Vacancy | None:
    """Return why there is no leader; None while the lease is held, and on SQLite, which has one server and no lease."""
    if connection.dialect.name != "postgresql":
        return None
    row = leadership_lease.c
    found = await connection.execute(
        select(row.holder, row.until, row.reason, (row.until > func.clock_timestamp()).label("valid"))
    )
    lease = found.one_or_none()
    if lease is None or (lease.holder is None and lease.reason is None):
        return Vacancy(None, "no server has led yet")
    if lease.holder is None:
        return Vacancy(lease.until, lease.reason)
    return None if lease.valid else Vacancy(lease.until, f"{lease.holder} stopped renewing its lease")
