"""The event feed: what changed, so that readers know which rows to read again.

The feed has one order, that of `model.events.Cursor`, and only what is finished is in it: on PostgreSQL the events of
transactions below the oldest running one. No event can appear before one that was read already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, and_, delete, func, literal_column, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import EventsPurged
from mooring.model.events import Cursor, Event, Noun
from mooring.store.sets import Statement
from mooring.store.tables import events

CHANNEL = "mooring"
PURGED = "purged"
"""Kind of the newest event that was forgotten: it stays, untold, so that what is before it can be told to be gone."""
PLACED = "placed"
"""The kind of a pool's event whose version numbers the commits that placed something in the pool."""


class NewEvent(NamedTuple):
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None
    details: Mapping[str, Any] | None = None
    """What a decision saw and chose."""


_INSERT = Statement(
    """
    INSERT INTO events (noun, object_id, version, kind, node_id, workload_id, details, at, term)
    SELECT i.noun, i.object_id, i.version, i.kind, i.node_id, i.workload_id, i.details, {at}, {term}
    FROM {rows} i
    """,
    {
        "noun": "text",
        "object_id": "uuid",
        "version": "bigint",
        "kind": "text",
        "node_id": "uuid",
        "workload_id": "uuid",
        "details": "jsonb",
    },
    at="timestamptz",
    term="bigint",
)


async def append(connection: AsyncConnection, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    """`term`: of the leader that commits them; None for what agents and users do."""
    if not new:
        return
    await _INSERT.run(connection, new, at=now, term=term)
    if connection.dialect.name == "postgresql":
        # Delivered to the other processes when, and only if, this transaction commits.
        await connection.execute(select(func.pg_notify(CHANNEL, "")))


async def purge(connection: AsyncConnection, before: datetime) -> int:
    """Forget what every reader has seen long ago: a beginning of the feed, never something from its middle."""
    end = await end_of_feed(connection)
    finished = not_after(connection, end)
    kept = (await connection.execute(_ends(connection, finished, events.c.at >= before).limit(1))).first()
    old = finished if kept is None else and_(finished, not_after(connection, Cursor(kept[0] or 0, kept[1] - 1)))
    newest = (await connection.execute(_ends(connection, old, newest_first=True).limit(1))).first()
    if newest is None or newest.kind == PURGED:
        return 0
    marker = Cursor(newest[0] or 0, newest[1])
    forgotten = await connection.execute(delete(events).where(not_after(connection, Cursor(marker[0], marker[1] - 1))))
    await connection.execute(
        update(events).where(events.c.revision == marker.revision).values(kind=PURGED, details=None)
    )
    return forgotten.rowcount + 1


async def check_kept(connection: AsyncConnection, since: Cursor) -> None:
    """Raise EventsPurged where something after the cursor is forgotten already, or was never there."""
    oldest = (await connection.execute(_ends(connection).limit(1))).first()
    if oldest is not None and oldest.kind == PURGED and since < Cursor(oldest[0] or 0, oldest[1]):
        raise EventsPurged("the events after this cursor are forgotten; read everything anew and go on from there")
    if since > await end_of_feed(connection):
        raise EventsPurged("this feed has not come as far as this cursor, which is another database's; read all anew")


async def end_of_feed(connection: AsyncConnection) -> Cursor:
    """Behind everything that can be read now, and before everything that will come."""
    if connection.dialect.name == "postgresql":
        return Cursor(await position(connection), 0)
    return Cursor(0, await position(connection))


def after(connection: AsyncConnection, cursor: Cursor) -> ColumnElement[bool]:
    """The condition of events behind a cursor."""
    if connection.dialect.name != "postgresql":
        return events.c.revision > cursor.revision
    # The first part is what the index is used for.
    transaction = events.c.transaction_id
    behind = or_(transaction > cursor.transaction, events.c.revision > cursor.revision)
    return and_(transaction >= cursor.transaction, behind)


def not_after(connection: AsyncConnection, cursor: Cursor) -> ColumnElement[bool]:
    if connection.dialect.name != "postgresql":
        return events.c.revision <= cursor.revision
    transaction = events.c.transaction_id
    until = or_(transaction < cursor.transaction, events.c.revision <= cursor.revision)
    return and_(transaction <= cursor.transaction, until)


def feed_order(connection: AsyncConnection) -> list[ColumnElement[Any]]:
    if connection.dialect.name != "postgresql":
        return [events.c.revision]
    return [events.c.transaction_id, events.c.revision]


def _ends(connection: AsyncConnection, *conditions: ColumnElement[bool], newest_first: bool = False) -> Any:
    order = feed_order(connection)
    return (
        select(events.c.transaction_id, events.c.revision, events.c.kind)
        .where(*conditions)
        .order_by(*(column.desc() for column in order) if newest_first else order)
    )


async def position(connection: AsyncConnection) -> int:
    """Where a reader that knows everything committed so far goes on from."""
    if connection.dialect.name == "postgresql":
        return int((await connection.execute(select(_oldest_running()))).scalar_one())
    return int((await connection.execute(select(func.coalesce(func.max(events.c.revision), 0)))).scalar_one())


async def since(connection: AsyncConnection, position_before: int) -> tuple[list[Event], int]:
    """Everything that became readable since a position, and the next position.

    On PostgreSQL commits become visible out of the order of revisions, so the position is a transaction number: all
    transactions below the oldest running one are finished, and none can appear below it later.
    """
    columns = (
        events.c.revision,
        events.c.noun,
        events.c.object_id,
        events.c.version,
        events.c.kind,
        events.c.node_id,
        events.c.workload_id,
    )
    told = select(*columns).where(events.c.kind != PURGED).order_by(events.c.revision)
    if connection.dialect.name == "postgresql":
        upper = int((await connection.execute(select(_oldest_running()))).scalar_one())
        rows = await connection.execute(
            told.where(events.c.transaction_id >= position_before, events.c.transaction_id < upper)
        )
        return [Event(*row) for row in rows], upper
    rows = await connection.execute(told.where(events.c.revision > position_before))
    found = [Event(*row) for row in rows]
    return found, found[-1].revision if found else position_before


async def held_back(connection: AsyncConnection, position_now: int) -> bool:
    """Whether something was committed that a reader at this position cannot take in yet.

    Some older transaction still runs, and no signal may come when it ends: look again soon.
    """
    if connection.dialect.name != "postgresql":
        return False
    later = select(events.c.revision).where(events.c.transaction_id >= position_now).limit(1)
    return (await connection.execute(later)).first() is not None


def _oldest_running() -> ColumnElement[int]:
    return literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
