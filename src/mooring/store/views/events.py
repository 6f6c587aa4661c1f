"""The event feed as people and their programs read it: page after page, with names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Cursor
from mooring.store import feed
from mooring.store.events import PURGED, USAGE
from mooring.store.tables import events, nodes, pools, tasks, workloads


@dataclass(frozen=True, slots=True)
class EventRow:
    cursor: Cursor
    noun: str
    object_id: UUID
    version: int
    kind: str
    at: datetime
    term: int | None
    workload_id: UUID | None
    node_id: UUID | None
    details: Mapping[str, Any] | None
    user_id: UUID | None
    """Whose workload it is about."""
    workload: str | None
    task_index: int | None
    node: str | None
    pool: str | None


@dataclass(frozen=True, slots=True)
class Sight:
    """Whose events are meant: those about the workloads of one user, or all; of one workload, or all."""

    user_id: UUID | None = None
    workload_id: UUID | None = None

    def shows(self, event: EventRow) -> bool:
        return (self.user_id is None or event.user_id == self.user_id) and (
            self.workload_id is None or event.workload_id == self.workload_id
        )


@dataclass(frozen=True, slots=True)
class Page:
    events: list[EventRow]
    next: Cursor
    """Where to go on: everything up to there was looked at."""
    more: bool
    """There is more than this page."""


async def page(connection: AsyncConnection, since: Cursor | None, *, sight: Sight, limit: int) -> Page:
    """The first events after the cursor, or of all that are kept; EventsPurged where some of them are forgotten."""
    end = await feed.end(connection)
    query = _events().where(feed.not_after(connection, end), events.c.kind.not_in((PURGED, USAGE)))
    if since is not None:
        query = query.where(feed.after(connection, since))
    if sight.user_id is not None:
        query = query.where(workloads.c.user_id == sight.user_id)
    if sight.workload_id is not None:
        query = query.where(events.c.workload_id == sight.workload_id)
    rows = list(await connection.execute(query.order_by(*feed.in_order(connection)).limit(limit + 1)))
    if since is not None:
        await feed.check_kept(connection, since, end)
    found = [EventRow(Cursor(row[0] or 0, row[1]), *row[2:]) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(found, found[-1].cursor if more else end, more)


def _events() -> Select[Any]:
    return (
        select(
            events.c.transaction_id,
            events.c.revision,
            events.c.noun,
            events.c.object_id,
            events.c.version,
            events.c.kind,
            events.c.at,
            events.c.term,
            events.c.workload_id,
            events.c.node_id,
            events.c.details,
            workloads.c.user_id,
            workloads.c.name,
            tasks.c.task_index,
            func.coalesce(nodes.c.name, tasks.c.node_name),
            pools.c.name,
        )
        .join(workloads, workloads.c.id == events.c.workload_id, isouter=True)
        .join(tasks, tasks.c.id == events.c.object_id, isouter=True)
        .join(nodes, nodes.c.id == events.c.node_id, isouter=True)
        .join(
            pools,
            pools.c.id == func.coalesce(workloads.c.pool_id, nodes.c.pool_id, events.c.object_id),
            isouter=True,
        )
    )
