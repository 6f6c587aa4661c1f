"""Nodes as autoscaling sees them: nodes that have just joined, and the use of nodes that were requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import PROMISED, TimeslotKind
from mooring.model.lifecycle import SILENT, NodeStatus
from mooring.store.control import events
from mooring.store.core.batch_sql import among
from mooring.store.tables import nodes, pools, tasks, timeslot_places, timeslots, volumes


@dataclass(frozen=True, slots=True)
class ScaledNode:
    """Requested node that is not lost."""

    id: UUID
    name: str
    pool: str
    template: str
    generation: int
    created_at: datetime
    draining: bool
    drained_by: str | None
    """The user or control loop that started the drain."""
    drained_at: datetime | None
    idle_since: datetime | None
    """Start of its idle time; None while it has tasks or volumes, or is silent."""
    booked: bool
    """True if a timeslot reserves capacity on it; maintenance does not count."""


async def newcomers(connection: AsyncConnection, since: datetime) -> list[tuple[UUID, datetime]]:
    """Return the unmatched nodes that have joined since a time, each with the time at which it joined."""
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.created_at)
        .where(nodes.c.created_at >= since, nodes.c.template.is_(None), nodes.c.status.not_in(sorted(SILENT)))
        .order_by(nodes.c.created_at, nodes.c.name)
    )
    return [(row.id, row.created_at) for row in rows]


async def load(connection: AsyncConnection) -> list[ScaledNode]:
    """Return all requested nodes that are not lost, by name."""
    found = (
        await connection.execute(
            select(nodes, pools.c.name.label("pool"))
            .join(pools, pools.c.id == nodes.c.pool_id)
            .where(nodes.c.template.is_not(None), nodes.c.status != NodeStatus.LOST)
            .order_by(nodes.c.name)
        )
    ).all()
    ids = [row.id for row in found]
    booked = await _booked(connection, ids)
    busy = await _occupied(connection, ids) | {row.id for row in found if row.status in SILENT}
    left_at = await _last_left(connection, [id for id in ids if id not in busy])
    return [
        ScaledNode(
            id=row.id,
            name=row.name,
            pool=row.pool,
            template=row.template,
            generation=row.generation,
            created_at=row.created_at,
            draining=row.draining,
            drained_by=row.drained_by,
            drained_at=row.drained_at,
            idle_since=None if row.id in busy else left_at.get(row.id, row.created_at),
            booked=row.id in booked,
        )
        for row in found
    ]


async def others(connection: AsyncConnection) -> dict[str, int]:
    """Return the number of nodes by pool that were not requested."""
    rows = await connection.execute(
        select(pools.c.name, func.count().label("number"))
        .join(nodes, nodes.c.pool_id == pools.c.id)
        .where(nodes.c.template.is_(None), nodes.c.status != NodeStatus.LOST)
        .group_by(pools.c.name)
    )
    return {row.name: row.number for row in rows}


async def note_joined(
    connection: AsyncConnection, node_id: UUID, *, template: str, request_id: UUID, now: datetime, term: int
) -> None:
    """Match the node to the request that asked for it. Placement is not affected, so the generation stays."""
    rows = await connection.execute(
        update(nodes)
        .where(nodes.c.id == node_id)
        .values(template=template, scale_request_id=request_id)
        .returning(nodes.c.generation)
    )
    node_events = [events.NewEvent("node", node_id, row.generation, "expected", node_id) for row in rows]
    await events.append(connection, node_events, now, term)


async def is_spare(connection: AsyncConnection, node_id: UUID) -> bool:
    """Return whether the node has no tasks, volumes or bookings."""
    return not await _occupied(connection, [node_id]) and not await _booked(connection, [node_id])


async def _occupied(connection: AsyncConnection, ids: Sequence[UUID]) -> set[UUID]:
    """Return the nodes with tasks, or with volumes, which cannot move."""
    rows = await connection.execute(
        select(tasks.c.node_id)
        .where(among(tasks.c.node_id, ids), tasks.c.freed_at.is_(None))
        .union(select(volumes.c.node_id).where(among(volumes.c.node_id, ids)))
    )
    return set(rows.scalars())


async def _last_left(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, datetime]:
    rows = await connection.execute(
        select(tasks.c.node_id, func.max(tasks.c.freed_at).label("at"))
        .where(among(tasks.c.node_id, ids))
        .group_by(tasks.c.node_id)
    )
    return {row.node_id: row.at for row in rows}


async def _booked(connection: AsyncConnection, ids: Sequence[UUID]) -> set[UUID]:
    rows = await connection.execute(
        select(timeslot_places.c.node_id)
        .join(timeslots, timeslots.c.id == timeslot_places.c.timeslot_id)
        .where(
            among(timeslot_places.c.node_id, ids),
            timeslots.c.status.in_(sorted(PROMISED)),
            timeslots.c.kind != TimeslotKind.MAINTENANCE,
        )
        .distinct()
    )
    return set(rows.scalars())
