"""Scale requests: written by the leader, delivered to the node provisioner, fulfilled by nodes that join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.nodes.node_templates import OPEN, PackingCost, ScaleRequest, ScaleRequestStatus
from mooring.store.control import events
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow
from mooring.store.tables import pools, scale_requests


async def insert_new(connection: AsyncConnection, new: Sequence[ScaleRequest], *, now: datetime, term: int) -> None:
    """Write requests, each with an event that describes it."""
    ids = {row.name: row.id for row in await connection.execute(select(pools.c.name, pools.c.id))}
    for request in new:
        await connection.execute(
            insert(scale_requests).values(
                id=request.id,
                pool_id=ids[request.pool],
                template=request.template,
                wanted=[{str(workload): count for workload, count in node.items()} for node in request.wanted],
                nodes=len(request.wanted),
                packing=None if request.packing is None else asdict(request.packing),
                created_at=request.created_at,
                version=request.version,
                **_values(request, now),
            )
        )
    await events.append(connection, [_scale_request_event(request) for request in new], now, term)


async def of_interest(connection: AsyncConnection, since: datetime) -> list[ScaleRequest]:
    """Return the requests that are open, and those updated since a time."""
    return await _load(connection, or_(_is_open(), scale_requests.c.updated_at >= since))


async def newest(connection: AsyncConnection, *, pool: str | None, limit: int) -> list[ScaleRequest]:
    query = _select().order_by(scale_requests.c.created_at.desc(), scale_requests.c.id.desc()).limit(limit)
    if pool is not None:
        query = query.where(pools.c.name == pool)
    return [_request(row) for row in await connection.execute(query)]


async def locked(connection: AsyncConnection, ids: Sequence[UUID]) -> list[ScaleRequest]:
    """Lock these requests, in the order of their ids, until the transaction ends, and return them."""
    lock = select(scale_requests.c.id).where(among(scale_requests.c.id, ids)).order_by(scale_requests.c.id)
    await connection.execute(lock.with_for_update())
    return await _load(connection, among(scale_requests.c.id, ids))


async def to_deliver(connection: AsyncConnection) -> list[ScaleRequest]:
    """Return the undelivered requests, the one with the earliest next attempt first."""
    waiting = (scale_requests.c.status == ScaleRequestStatus.REQUESTED, scale_requests.c.next_attempt_at.is_not(None))
    return sorted(await _load(connection, *waiting), key=lambda request: (request.next_attempt_at, request.id))


async def save(connection: AsyncConnection, changed: Sequence[ScaleRequest], *, now: datetime, term: int) -> None:
    """Write the new state of `locked` requests, each with an event."""
    for request in changed:
        await connection.execute(
            update(scale_requests)
            .where(scale_requests.c.id == request.id)
            .values(version=request.version + 1, **_values(request, now))
        )
    await events.append(connection, [_scale_request_event(request, 1) for request in changed], now, term)


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete requests that ended before a time; return the number deleted."""
    over = select(scale_requests.c.id).where(~_is_open(), scale_requests.c.updated_at < before).limit(limit)
    return (await connection.execute(delete(scale_requests).where(scale_requests.c.id.in_(over)))).rowcount


def _is_open() -> ColumnElement[bool]:
    return scale_requests.c.status.in_(sorted(OPEN))


def _values(request: ScaleRequest, now: datetime) -> dict[str, Any]:
    return {
        "status": request.status,
        "joined": request.joined,
        "attempts": request.attempts,
        "next_attempt_at": request.next_attempt_at,
        "error": None if request.error is None else request.error[:500],
        "delivered_at": request.delivered_at,
        "expires_at": request.expires_at,
        "updated_at": now,
    }


def _scale_request_event(request: ScaleRequest, raised: int = 0) -> events.NewEvent:
    details = {
        "pool": request.pool,
        "template": request.template,
        "nodes": len(request.wanted),
        "joined": request.joined,
        "error": request.error,
    }
    version = request.version + raised
    return events.NewEvent("scale-request", request.id, version, request.status.value, details=details)


async def _load(connection: AsyncConnection, *conditions: ColumnElement[bool]) -> list[ScaleRequest]:
    rows = await connection.execute(_select().where(*conditions).order_by(scale_requests.c.id))
    return [_request(row) for row in rows]


def _select() -> Select[Any]:
    return select(scale_requests, pools.c.name.label("pool")).join(pools, pools.c.id == scale_requests.c.pool_id)


def _request(row: AnyRow) -> ScaleRequest:
    return ScaleRequest(
        id=row.id,
        pool=row.pool,
        template=row.template,
        status=ScaleRequestStatus(row.status),
        wanted=tuple({UUID(workload): count for workload, count in node.items()} for node in row.wanted),
        expires_at=row.expires_at,
        created_at=row.created_at,
        joined=row.joined,
        attempts=row.attempts,
        next_attempt_at=row.next_attempt_at,
        error=row.error,
        delivered_at=row.delivered_at,
        packing=None if row.packing is None else PackingCost(**row.packing),
        version=row.version,
    )
