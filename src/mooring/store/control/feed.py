"""The feed as its readers resume it: one order, a cursor in it, and a beginning that is forgotten some day.

The order is that of `model.events.Cursor`, and only what is finished is in it: on PostgreSQL the events of transactions
below the oldest running one. So no event can ever appear before one that was read already.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import EventsPurged
from mooring.model.events import Cursor
from mooring.store.events import PURGED, position
from mooring.store.tables import events


async def purge(connection: AsyncConnection, before: datetime, most: int = 10_000) -> int:
    """Forget what every reader has seen long ago: a beginning of the feed, never something from its middle.

    The newest that is forgotten stays, marked, so that whoever has not read as far can be told.
    """
    finished = not_after(connection, await end(connection))
    kept = (await connection.execute(_cursors(connection, finished, events.c.at >= before).limit(1))).first()
    old = finished if kept is None else and_(finished, not_after(connection, Cursor(kept[0] or 0, kept[1] - 1)))
    newest = (await connection.execute(_cursors(connection, old).offset(most).limit(1))).first()
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


async def check_kept(connection: AsyncConnection, since: Cursor, until: Cursor) -> None:
    """Raise EventsPurged where something after the cursor is forgotten already, or it lies behind the end of the feed.

    To be asked after the events were read: what is forgotten meanwhile must not be missed in silence.
    """
    oldest = (await connection.execute(_cursors(connection).limit(1))).first()
    if oldest is not None and oldest.kind == PURGED and since < Cursor(oldest[0] or 0, oldest[1]):
        raise EventsPurged("the events after this cursor are forgotten; read everything anew and go on from there")
    if since > until:
        raise EventsPurged("this feed has not come as far as this cursor, which is another database's; read all anew")


async def end(connection: AsyncConnection) -> Cursor:
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
