"""The event feed for users and their programs: pages of events, with the names of their objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.events import Cursor
from mooring.model.tenancy.access import EVERYTHING, Sight, Target
from mooring.store.control import feed
from mooring.store.control.events import PURGED, USAGE
from mooring.store.tables import events, nodes, pools, tasks, timeslots, workloads
from mooring.store.views.visibility import shown_to


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
    domain_id: UUID | None
    project_id: UUID | None
    user_id: UUID | None
    """Domain, project and user of the workload or timeslot; None for events of nodes, pools and tenants."""
    workload: str | None
    task_index: int | None
    node: str | None
    pool: str | None
    timeslot: str | None


@dataclass(frozen=True, slots=True)
class Watch:
    """A filter of events: those of visible work or all, and those of one workload or of all."""

    sight: Sight = EVERYTHING
    workload_id: UUID | None = None

    def shows(self, event: EventRow) -> bool:
        if self.workload_id is not None and event.workload_id != self.workload_id:
            return False
        return self.sight.shows(Target(event.domain_id, event.project_id, event.user_id))


@dataclass(frozen=True, slots=True)
class Page:
    events: list[EventRow]
    next: Cursor
    """The cursor of the next page: this page covers all events up to it."""
    more: bool
    """Whether further events follow."""


async def page(connection: AsyncConnection, since: Cursor | None, *, watch: Watch, limit: int) -> Page:
    """Return the first events after the cursor, or of the whole feed.

    Raise EventsPurged if events after the cursor were purged, or if the cursor is beyond the end of the feed.
    """
    end = await feed.end(connection)
    query = _events().where(feed.not_after(connection, end), events.c.kind.not_in((PURGED, USAGE)))
    if since is not None:
        query = query.where(feed.after(connection, since))
    if not watch.sight.everything:
        tenant = {name: _tenant(name) for name in ("domain_id", "project_id", "user_id")}
        query = query.where(shown_to(watch.sight, **tenant))
    if watch.workload_id is not None:
        query = query.where(events.c.workload_id == watch.workload_id)
    rows = list(await connection.execute(query.order_by(*feed.in_order(connection)).limit(limit + 1)))
    if since is not None:
        await feed.check_retained(connection, since, end)
    found = [EventRow(Cursor(row[0] or 0, row[1]), *row[2:]) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(found, found[-1].cursor if more else end, more)


def _tenant(column: str) -> ColumnElement[UUID]:
    """Return a tenant column of the workload or timeslot of an event."""
    return func.coalesce(workloads.c[column], timeslots.c[column])


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
            _tenant("domain_id"),
            _tenant("project_id"),
            _tenant("user_id"),
            workloads.c.name,
            tasks.c.task_index,
            func.coalesce(nodes.c.name, tasks.c.node_name),
            pools.c.name,
            timeslots.c.name,
        )
        .join(workloads, workloads.c.id == events.c.workload_id, isouter=True)
        .join(tasks, tasks.c.id == events.c.object_id, isouter=True)
        .join(timeslots, timeslots.c.id == events.c.object_id, isouter=True)
        .join(nodes, nodes.c.id == events.c.node_id, isouter=True)
        .join(
            pools,
            pools.c.id == func.coalesce(workloads.c.pool_id, nodes.c.pool_id, timeslots.c.pool_id, events.c.object_id),
            isouter=True,
        )
    )
