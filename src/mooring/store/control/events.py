"""The event feed: what changed, so that readers know which rows to read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Event, Noun
from mooring.store.sets import Statement, Writes
from mooring.store.tables import events

CHANNEL = "mooring"
PURGED = "purged"
"""Kind of the newest event that was forgotten; it stays for `store.feed` and is told to nobody."""
PLACED = "placed"
"""The kind of a pool's event whose version numbers the commits that placed something in the pool."""

USAGE = "usage"
"""The kind of a tenant's event when what it uses has changed, which is told to the mirrors alone."""
QUOTA = "quota"
"""The kind of a tenant's event when what it may use has changed."""
SECRETS = "secrets"
"""The kind of a project's event when one of its secrets or logins to registries has changed."""

READY, UNREADY, RETIRING = "ready", "unready", "retiring"
"""The kinds of events of a task that runs on: somebody may be sent to it, nobody for now, nobody ever again."""
RENEWED = "renewed"
"""Likewise: something else was learned about it."""


class NewEvent(NamedTuple):
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None
    details: Mapping[str, Any] | None = None
    """What a decision saw and chose."""


_NOUN = NewEvent._fields.index("noun")
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
_NOTIFY = Statement("SELECT pg_notify(i.channel, '') FROM {rows} i", {"channel": "text"})
_TOLD = (
    select(
        events.c.revision,
        events.c.noun,
        events.c.object_id,
        events.c.version,
        events.c.kind,
        events.c.node_id,
        events.c.workload_id,
    )
    .where(events.c.kind != PURGED)
    .order_by(events.c.revision)
)
_AFTER_REVISION = _TOLD.where(events.c.revision > bindparam("position"))
_BETWEEN_TRANSACTIONS = _TOLD.where(
    events.c.transaction_id >= bindparam("position"), events.c.transaction_id < bindparam("upper")
)


async def append(connection: AsyncConnection, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    """`term`: of the leader that commits them; None for what agents and users do."""
    writes = Writes.on(connection)
    tell(writes, new, now, term)
    await writes.make(connection)


def tell(writes: Writes, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    """`append` among other writes."""
    if not new:
        return
    writes.add_runs(_INSERT, new, alike=_NOUN, at=now, term=term)
    if writes.dialect == "postgresql":
        # Delivered to the other processes when, and only if, this transaction commits.
        writes.add(_NOTIFY, [(CHANNEL,)])


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
    if connection.dialect.name == "postgresql":
        upper = int((await connection.execute(select(_oldest_running()))).scalar_one())
        rows = await connection.execute(_BETWEEN_TRANSACTIONS, {"position": position_before, "upper": upper})
        return [Event(*row) for row in rows], upper
    rows = await connection.execute(_AFTER_REVISION, {"position": position_before})
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
