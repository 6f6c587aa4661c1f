"""Heartbeats: batched reports from nodes, and detection of nodes that stopped reporting."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, SILENT, NodeStatus
from mooring.store.commit.history import ChangeLog
from mooring.store.control.events import NewEvent
from mooring.store.core import batch_sql
from mooring.store.core.batch_sql import Writes
from mooring.store.core.types import AnyRow
from mooring.store.nodes import quarantine
from mooring.store.tables import nodes, tasks

_CREDENTIALS = select(nodes.c.id, nodes.c.credential_hash).where(batch_sql.among(nodes.c.id))
_STATES = select(
    nodes.c.id,
    nodes.c.status,
    nodes.c.draining,
    nodes.c.schedulable,
    nodes.c.reason,
    nodes.c.occupied_ports,
    nodes.c.generation,
).where(batch_sql.among(nodes.c.id))
_SEEN = (
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(
        cpu_percent=bindparam("cpu"),
        memory_percent=bindparam("memory"),
        disk_percent=bindparam("disk"),
        last_seen_at=bindparam("at"),
    )
)
# A bind that commits while its node is being marked lost leaves a task on the lost node.
_LEFT_BEHIND = select(tasks.c.id).where(tasks.c.node_id == nodes.c.id, tasks.c.status.in_(list(OCCUPYING)))
_SILENT = (
    select(nodes.c.id, nodes.c.name, nodes.c.status, nodes.c.last_seen_at)
    .where(
        nodes.c.simulated.is_(False),
        or_(nodes.c.status != NodeStatus.LOST, _LEFT_BEHIND.exists()),
        nodes.c.last_seen_at < bindparam("before"),
    )
    .order_by(nodes.c.id)
)


@dataclass(frozen=True, slots=True)
class Beat:
    node_id: UUID
    credential_hash: str | None
    cpu_percent: float
    memory_percent: float
    disk_percent: float
    problem: str | None
    occupied_ports: tuple[tuple[str, int], ...] = ()
    """Ports in use by other programs than the node's tasks, by protocol and number."""


class HeartbeatResult(NamedTuple):
    over: set[UUID]
    """Nodes that were removed or have joined again with a new credential: the sender must stop its heartbeats."""
    changed: bool = False
    """True if the schedulability or the occupied ports of some node changed."""


async def record_beats(connection: AsyncConnection, beats: Sequence[Beat], now: datetime) -> HeartbeatResult:
    """Record the load of many nodes. A problem that appears or clears changes whether the node is schedulable, and
    an occupied port cannot be assigned.
    """
    found = await connection.execute(_CREDENTIALS, {"ids": [beat.node_id for beat in beats]})
    known = {(row.id, row.credential_hash) for row in found}
    over = {beat.node_id for beat in beats if (beat.node_id, beat.credential_hash) not in known}
    beats = [beat for beat in beats if beat.node_id not in over]
    if not beats:
        return HeartbeatResult(over)
    await connection.execute(
        _SEEN,
        [
            {"node": b.node_id, "cpu": b.cpu_percent, "memory": b.memory_percent, "disk": b.disk_percent, "at": now}
            for b in sorted(beats, key=lambda beat: beat.node_id)
        ],
    )
    return HeartbeatResult(over, await _note_changes(connection, {beat.node_id: beat for beat in beats}, now))


async def _note_changes(connection: AsyncConnection, beats: dict[UUID, Beat], now: datetime) -> bool:
    """Record nodes that are no longer silent, or whose problem or occupied ports changed; return False without any."""
    rows = await connection.execute(_STATES, {"ids": beats})
    quarantined = await quarantine.reasons(connection, list(beats))
    log = ChangeLog("agent", now)
    changed: list[dict[str, Any]] = []
    for row in rows.all():
        problem, back = beats[row.id].problem or quarantined.get(row.id), row.status in SILENT
        ports = [list(port) for port in beats[row.id].occupied_ports]
        same_ports = ports == (row.occupied_ports or [])
        if row.schedulable == (problem is None) and row.reason == problem and not back and same_ports:
            continue
        status = status_after_silence(row) if back else row.status
        changed.append({"node": row.id, "state": status, "open": problem is None, "why": problem, "ports": ports})
        if back:
            log.add_status("node", row.id, None, row.status, status, "Agent answers again")
        log.add_event(NewEvent("node", row.id, row.generation + 1, "health", row.id))
    if not changed:
        return False
    await connection.execute(
        update(nodes)
        .where(nodes.c.id == bindparam("node"))
        .values(
            status=bindparam("state"),
            schedulable=bindparam("open"),
            reason=bindparam("why"),
            occupied_ports=bindparam("ports", type_=nodes.c.occupied_ports.type),
            generation=nodes.c.generation + 1,
        ),
        changed,
    )
    await _write(connection, log)
    return True


def status_after_silence(row: AnyRow) -> NodeStatus:
    """Return the status of a silent node once its agent reports again."""
    return NodeStatus.DRAINING if row.draining else NodeStatus.READY


async def silent(connection: AsyncConnection, seen_before: datetime) -> list[AnyRow]:
    """Return the real nodes last seen before this time, except lost nodes without tasks."""
    return list(await connection.execute(_SILENT, {"before": seen_before}))


async def fall_silent(
    connection: AsyncConnection,
    node_ids: Collection[UUID],
    seen_before: datetime,
    status: Literal[NodeStatus.SUSPECT, NodeStatus.LOST],
    *,
    reason: str,
    now: datetime,
    term: int | None = None,
) -> set[UUID]:
    """Mark those nodes suspect or lost that are still silent; return all that are still silent.

    Uses a fixed number of statements. Nodes are locked after workloads and by id, the lock order used everywhere.
    """
    rows = await connection.execute(
        select(nodes.c.id, nodes.c.status, nodes.c.generation)
        .where(batch_sql.among(nodes.c.id, node_ids), nodes.c.last_seen_at < seen_before)
        .order_by(nodes.c.id)
        .with_for_update()
    )
    found = rows.all()
    # A lost node does not become suspect again.
    changed = [row for row in found if row.status not in (status, NodeStatus.LOST)]
    if changed:
        await connection.execute(
            update(nodes)
            .where(batch_sql.among(nodes.c.id, [row.id for row in changed]))
            .values(status=status, reason=reason, generation=nodes.c.generation + 1)
        )
        log = ChangeLog("nodes", now, term)
        for row in changed:
            log.add_status("node", row.id, None, row.status, status, reason)
            log.add_event(NewEvent("node", row.id, row.generation + 1, status, row.id))
        await _write(connection, log)
    return {row.id for row in found}


async def _write(connection: AsyncConnection, log: ChangeLog) -> None:
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)
