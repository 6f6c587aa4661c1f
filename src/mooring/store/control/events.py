"""The event feed: which rows have changed, so that readers know what to read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import BigInteger, and_, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Event, Noun, Topics, decode_topics, encode_topics
from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.postgres import CHANNEL
from mooring.store.core.queries import Query
from mooring.store.tables import events

PURGED = "purged"
"""The kind of the newest purged event; it stays as a marker for `store.control.feed` and is not delivered."""
PLACED = "placed"
"""The kind of a pool's event after placements; its version is the placement revision."""

DEFRAGMENTATION = "defragmentation"
"""The kind of a pool's event when an automatic plan of moves begins or ends; see its details."""

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
_COLUMNS = (
    events.c.revision,
    events.c.noun,
    events.c.object_id,
    events.c.version,
    events.c.kind,
    events.c.node_id,
    events.c.workload_id,
)
_READABLE = select(*_COLUMNS).where(events.c.kind != PURGED).order_by(events.c.revision)
_AFTER_REVISION = Query(_READABLE.where(events.c.revision > bindparam("position")))
_OLDEST_RUNNING = literal_column("pg_snapshot_xmin(pg_current_snapshot())::text::bigint", BigInteger)
_NOT_READABLE = select(events.c.revision).where(events.c.transaction_id >= _OLDEST_RUNNING).limit(1)
_IS_HELD_BACK = _NOT_READABLE.scalar_subquery().is_not(None)
_FINISHED = select(_OLDEST_RUNNING.label("upper"), _IS_HELD_BACK.label("later")).subquery()
# One statement, so that it reads one snapshot. It returns a row even without events.
_BETWEEN_TRANSACTIONS = Query(
    select(_FINISHED.c.upper, _FINISHED.c.later, *_COLUMNS)
    .select_from(_FINISHED)
    .outerjoin(
        events,
        and_(
            events.c.transaction_id >= bindparam("position", type_=BigInteger),
            events.c.transaction_id < _OLDEST_RUNNING,
            events.c.kind != PURGED,
        ),
    )
    .order_by(events.c.revision)
)


class News(NamedTuple):
    """The events that became readable since a position."""

    events: list[Event]
    position: int
    """The next position."""
    held_back: bool
    """There are committed events that a reader cannot read yet, because an older transaction is still running.

    No signal may follow when it ends: read again soon.
    """


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
        return int((await connection.execute(select(_OLDEST_RUNNING))).scalar_one())
    return int((await connection.execute(select(func.coalesce(func.max(events.c.revision), 0)))).scalar_one())


async def since(connection: AsyncConnection, position_before: int) -> News:
    """Return the events that became readable since a position.

    On PostgreSQL commits become visible out of the order of revisions, so the position is a transaction number: all
    transactions below the oldest running one are finished, and none can appear below it later.
    """
    if connection.dialect.name == "postgresql":
        rows = await _BETWEEN_TRANSACTIONS.rows(connection, position=position_before)
        upper, held_back = rows[0][:2]
        return News([Event(*row[2:]) for row in rows if row[2] is not None], upper, held_back)
    found = [Event(*row) for row in await _AFTER_REVISION.rows(connection, position=position_before)]
    return News(found, found[-1].revision if found else position_before, held_back=False)
