"""The event feed: which rows have changed, so that readers know what to read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Event, Noun, Topics, decode_topics, encode_topics
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.postgres import CHANNEL
from mooring.store.tables import events

PURGED = "purged"
"""The kind of the newest purged event; it stays as a marker for `store.control.feed` and is not delivered."""
PLACED = "placed"
"""The kind of a pool's event after placements; its version is the placement revision."""

USAGE = "usage"
"""The kind of a tenant's event when its usage has changed; only mirrors get it."""
QUOTA = "quota"
"""The kind of a tenant's event when its limits have changed."""
SECRETS = "secrets"
"""The kind of a project's event when one of its secrets or registry logins has changed."""

UNSCHEDULABLE = "unschedulable"
"""The kind of a workload's event when it becomes unschedulable, or for another reason than before; see its details.

Mirrors skip it: no row that they read has changed.
"""

READY, UNREADY, RETIRING = "ready", "unready", "retiring"
"""The kinds of events of a running task: it may get traffic, gets none for now, or will never get any again."""
RENEWED = "renewed"
"""The kind of a running task's event when its image digests, its address or its restarts have changed."""
CRASHED, CRASH_LOOPING = "crashed", "crash-looping"
"""The kinds of events of a task that ended soon after its start and starts again, once or repeatedly; see its details.

A workload has the second when a task that is replaced enters a crash loop.
"""
CRASHES = frozenset({CRASHED, CRASH_LOOPING})


class NewEvent(NamedTuple):
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None
    details: Mapping[str, Any] | None = None
    """Details of the decision."""


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
_NOTIFY = Statement("SELECT pg_notify(i.channel, i.payload) FROM {rows} i", {"channel": "text", "payload": "text"})
_READABLE = (
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
_AFTER_REVISION = _READABLE.where(events.c.revision > bindparam("position"))
_BETWEEN_TRANSACTIONS = _READABLE.where(
    events.c.transaction_id >= bindparam("position"), events.c.transaction_id < bindparam("upper")
)


async def append(connection: AsyncConnection, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    """Write events. `term`: of the leader that commits them; None for changes by agents and users."""
    writes = Writes.on(connection)
    add(writes, new, now, term)
    await writes.execute(connection)


def add(writes: Writes, new: Sequence[NewEvent], now: datetime, term: int | None = None) -> None:
    """Add events to the writes of a transaction."""
    if not new:
        return
    writes.add_runs(_INSERT, new, alike=_NOUN, at=now, term=term)
    topics = {(event.noun, str(event.kind)) for event in new}
    writes.topics |= topics
    if writes.dialect == "postgresql":
        # Delivered to the other processes when, and only if, this transaction commits.
        writes.add(_NOTIFY, [(CHANNEL, f"{writes.origin} {encode_topics(topics)}")])


def read_notification(payload: str) -> tuple[str, Topics]:
    """Return the origin and the topics of a notification on CHANNEL."""
    origin, _, topics = payload.partition(" ")
    return origin, decode_topics(topics)


async def position(connection: AsyncConnection) -> int:
    """Return the position from which a reader continues that has read everything committed so far."""
    if connection.dialect.name == "postgresql":
        return int((await connection.execute(select(_oldest_running()))).scalar_one())
    return int((await connection.execute(select(func.coalesce(func.max(events.c.revision), 0)))).scalar_one())


async def since(connection: AsyncConnection, position_before: int) -> tuple[list[Event], int]:
    """Return the events that became readable since a position, and the next position.

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
    """Return whether there are committed events that a reader at this position cannot read yet.

    An older transaction is still running, and no signal may follow when it ends: read again soon.
    """
    if connection.dialect.name != "postgresql":
        return False
    later = select(events.c.revision).where(events.c.transaction_id >= position_now).limit(1)
    return (await connection.execute(later)).first() is not None


def _oldest_running() -> ColumnElement[int]:
    return literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
