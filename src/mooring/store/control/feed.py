"""The event feed for readers that resume at a cursor, and its purging.

Events are in the order of `model.events.Cursor`. On PostgreSQL only events of transactions below the oldest running one
are readable, so that no event can appear before one that was read already.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import EventsPurged
from mooring.model.events import Cursor
from mooring.store.control.events import PURGED, position
from mooring.store.tables import events


async def purge(connection: AsyncConnection, before: datetime, limit: int = 10_000) -> int:
    """Purge old events from the beginning of the feed, and return how many.

    The newest purged event stays as a marker, so that readers behind it get an error.
    """
    finished = not_after(connection, await end(connection))
    first_retained = (await connection.execute(_cursors(connection, finished, events.c.at >= before).limit(1))).first()
    old = (
        finished
        if first_retained is None
        else and_(finished, not_after(connection, Cursor(first_retained[0] or 0, first_retained[1] - 1)))
    )
    newest = (await connection.execute(_cursors(connection, old).offset(limit).limit(1))).first()
    if newest is None:
        newest = (await connection.execute(_cursors(connection, old, newest_first=True).limit(1))).first()
    if newest is None or newest.kind == PURGED:
        return 0
    marker = Cursor(newest[0] or 0, newest[1])
    forgotten = await connection.execute(delete(events).where(not_after(connection, Cursor(marker[0], marker[1] - 1))))
    await connection.execute(
        update(events).where(events.c.revision == marker.revision).values(kind=PURGED, details=None)
    )
    return forgotten.rowcount + 1


async def check_retained(connection: AsyncConnection, since: Cursor, until: Cursor) -> None:
    """Raise EventsPurged if events after the cursor were purged, or if the cursor is beyond the end of the feed.

    Call it after reading the events, so that events that were purged meanwhile do not go unnoticed.
    """
    oldest = (await connection.execute(_cursors(connection).limit(1))).first()
    if oldest is not None and oldest.kind == PURGED and since < Cursor(oldest[0] or 0, oldest[1]):
        raise EventsPurged(
            "the events after this cursor have been purged: read the current state again and continue from its cursor"
        )
    if since > until:
        raise EventsPurged(
            "this cursor is beyond the end of the feed, so it belongs to another database: read the current state again"
        )


async def end(connection: AsyncConnection) -> Cursor:
    """Return the cursor after all events that can be read now."""
    if connection.dialect.name == "postgresql":
        return Cursor(await position(connection), 0)
    return Cursor(0, await position(connection))


def after(connection: AsyncConnection, cursor: Cursor) -> ColumnElement[bool]:
    """Return the condition for events after a cursor."""
    if connection.dialect.name != "postgresql":
        return events.c.revision > cursor.revision
    # The first condition uses the index.
    transaction = events.c.transaction_id
    behind = or_(transaction > cursor.transaction, events.c.revision > cursor.revision)
    return and_(transaction >= cursor.transaction, behind)


def not_after(connection: AsyncConnection, cursor: Cursor) -> ColumnElement[bool]:
    if connection.dialect.name != "postgresql":
        return events.c.revision <= cursor.revision
    transaction = events.c.transaction_id
    until = or_(transaction < cursor.transaction, events.c.revision <= cursor.revision)
    return and_(transaction <= cursor.transaction, until)


def in_order(connection: AsyncConnection) -> list[ColumnElement[Any]]:
    if connection.dialect.name != "postgresql":
        return [events.c.revision]
    return [events.c.transaction_id, events.c.revision]


def _cursors(connection: AsyncConnection, *conditions: ColumnElement[bool], newest_first: bool = False) -> Select[Any]:
    order = in_order(connection)
    return (
        select(events.c.transaction_id, events.c.revision, events.c.kind)
        .where(*conditions)
        .order_by(*(column.desc() for column in order) if newest_first else order)
    )
