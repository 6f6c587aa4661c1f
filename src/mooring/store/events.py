"""The event feed: what changed, so that readers know which rows to read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, func, insert, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Event, Noun
from mooring.store.tables import events

CHANNEL = "mooring"
PURGED = "purged"
"""Kind of the newest event that was forgotten; it stays for `store.feed` and is told to nobody."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None
    details: Mapping[str, Any] | None = None
    """What the decision saw and chose."""


async def append(connection: AsyncConnection, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    if not new:
        return
    await connection.execute(
        insert(events),
        [
            {
                "noun": event.noun,
                "object_id": event.object_id,
                "version": event.version,
                "kind": event.kind,
                "node_id": event.node_id,
                "workload_id": event.workload_id,
                "at": now,
                "term": term,
                "details": None if event.details is None else dict(event.details),
            }
            for event in new
        ],
    )
    if connection.dialect.name == "postgresql":
        # Delivered to the other processes when, and only if, this transaction commits.
        await connection.execute(select(func.pg_notify(CHANNEL, "")))


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


def _oldest_running() -> ColumnElement[int]:
    return literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
