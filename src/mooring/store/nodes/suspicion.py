"""Recent failures and successes on nodes, and the taint of suspected nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Text, cast, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.nodes.suspicion import (
    FAILING,
    START_FAULTS,
    Failure,
    Suspicion,
)
from mooring.model.workloads.lifetime.retries import EVICTED, TIME_LIMIT
from mooring.store.commit.history import ChangeLog
from mooring.store.core.batch_sql import Writes
from mooring.store.core.chunks import chunks
from mooring.store.nodes import taints
from mooring.store.nodes.taints import TimedTaint
from mooring.store.tables import nodes, tasks, workloads

_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Suspect:
    """State of a node that decides about its suspicion."""

    id: UUID
    name: str
    pool_id: UUID
    status: NodeStatus
    schedulable: bool
    draining: bool
    avoided_since: datetime | None


async def all_nodes(connection: AsyncConnection) -> list[Suspect]:
    rows = await connection.execute(select(nodes).order_by(nodes.c.name))
    return [
        Suspect(
            row.id,
            row.name,
            row.pool_id,
            NodeStatus(row.status),
            row.schedulable,
            row.draining,
            next((each.since for each in taints.timed_taints(row) if each.taint == FAILING), None),
        )
        for row in rows
    ]


async def failures(connection: AsyncConnection, rules: Suspicion, now: datetime) -> list[Failure]:
    """Return recent tasks that failed to start or failed soon after, since an admin last marked their node trusted."""
    own = tasks.c
    rows = await connection.execute(
        select(
            own.node_id,
            own.started_at,
            own.ended_at,
            own.reason,
            workloads.c.user_id,
            cast(workloads.c.template, Text).label("template"),
        )
        .join(workloads, workloads.c.id == own.workload_id)
        .join(nodes, nodes.c.id == own.node_id)
        .where(
            own.status == TaskStatus.FAILED,
            own.ended_at > now - rules.window,
            or_(nodes.c.trusted_since.is_(None), own.ended_at > nodes.c.trusted_since),
        )
        .order_by(own.ended_at.desc())
        .limit(_LIMIT)
    )
    found: list[Failure] = []
    for row in rows:
        code = str((row.reason or {}).get("code", ""))
        if row.started_at is None:
            counts = code in START_FAULTS
        else:
            counts = row.ended_at - row.started_at < rules.fast_end and code not in (EVICTED, TIME_LIMIT)
        if counts:
            found.append(Failure(row.node_id, (row.user_id, row.template), code, row.ended_at))
    return found


async def well_until(
    connection: AsyncConnection, node_ids: Collection[UUID], rules: Suspicion, now: datetime
) -> dict[UUID, datetime]:
    """Return each node's latest recent success: a task that succeeded, or that has run longer than a fast failure."""
    own = tasks.c
    found: dict[UUID, datetime] = {}
    for part in chunks(sorted(node_ids)):
        succeeded = (
            select(own.node_id, func.max(own.ended_at, type_=own.ended_at.type))
            .where(own.node_id.in_(part), own.status == TaskStatus.SUCCEEDED, own.ended_at > now - rules.window)
            .group_by(own.node_id)
        )
        runs = (
            select(own.node_id, func.max(own.started_at, type_=own.started_at.type))
            .where(own.node_id.in_(part), own.status == TaskStatus.RUNNING, own.started_at <= now - rules.fast_end)
            .group_by(own.node_id)
        )
        for query in (succeeded, runs):
            for node_id, at in await connection.execute(query):
                found[node_id] = max(at, found.get(node_id, at))
    return found


async def avoid(
    connection: AsyncConnection, reasons: Mapping[UUID, str], *, actor: str, now: datetime, term: int
) -> None:
    """Taint these nodes, so that the scheduler prefers others."""
    for node_id, reason in sorted(reasons.items()):
        await taints.change(connection, node_id, add=[TimedTaint(FAILING, now, reason)], now=now)
    await _note(connection, {node_id: f"Avoided: {reason}" for node_id, reason in reasons.items()}, actor, now, term)


async def forgive(
    connection: AsyncConnection, node_ids: Sequence[UUID], *, actor: str, now: datetime, term: int
) -> None:
    """Remove the taint from these nodes after work has succeeded on them."""
    for node_id in sorted(node_ids):
        await taints.change(connection, node_id, remove=[(FAILING.key, None)], now=now)
    await _note(connection, dict.fromkeys(node_ids, "No longer avoided: work succeeds there again"), actor, now, term)


async def trust(connection: AsyncConnection, node_id: UUID, now: datetime) -> None:
    """Mark the node as trusted on an admin's word: earlier failures no longer count."""
    await connection.execute(update(nodes).where(nodes.c.id == node_id).values(trusted_since=now))
    await taints.change(connection, node_id, remove=[(FAILING.key, None)], now=now)


async def _note(connection: AsyncConnection, texts: Mapping[UUID, str], actor: str, now: datetime, term: int) -> None:
    rows = await connection.execute(select(nodes.c.id, nodes.c.status).where(nodes.c.id.in_(list(texts))))
    log = ChangeLog(actor, now, term)
    for row in rows:
        log.add_status("node", row.id, None, row.status, row.status, texts[row.id])
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)
