"""Compact records of ended workloads, which are retained after the workloads and their history are purged."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.batch_sql import Statement, Writes
from mooring.store.core.types import EPOCH
from mooring.store.tables import workload_records

_NODES = {
    "postgresql": "coalesce(jsonb_agg(DISTINCT t.node_name) FILTER (WHERE t.node_name IS NOT NULL), '[]')",
    "sqlite": "json_group_array(DISTINCT t.node_name) FILTER (WHERE t.node_name IS NOT NULL)",
}
# All tasks of a workload request the same amounts.
_TIMES_REQUEST = {
    "postgresql": """
        SELECT coalesce(jsonb_object_agg(r.key, r.value::bigint * l.level), '{{}}')
        FROM jsonb_each_text(w.requested_slots) r WHERE l.level > 0
    """,
    "sqlite": """
        SELECT json_group_object(r.key, r.value * l.level) FROM json_each(w.requested_slots) r WHERE l.level > 0
    """,
}


def _insertion(dialect: str) -> Statement:
    epoch = EPOCH[dialect]
    begun = epoch.format("coalesce(c.started_at, w.ended_at)")
    return Statement(
        f"""
        INSERT INTO workload_records (
            workload_id, name, kind, type, domain, project, username, access_key, pool, priority, tasks, attempts,
            requested_slots, peak_slots, nodes, status, reason, created_at, started_at, ended_at,
            wait_seconds, run_seconds
        )
        WITH steps AS (
            SELECT t.workload_id, t.scheduled_at AS at, 1 AS step FROM {{rows}} i JOIN tasks t ON t.workload_id = i.id
            WHERE t.freed_at IS NULL AND t.scheduled_at IS NOT NULL OR t.freed_at > t.scheduled_at
            UNION ALL
            SELECT t.workload_id, t.freed_at, -1 FROM {{rows}} i JOIN tasks t ON t.workload_id = i.id
            WHERE t.freed_at > t.scheduled_at
        ),
        levels AS (
            SELECT s.workload_id, max(s.level) AS level FROM (
                SELECT workload_id, sum(step) OVER (
                    PARTITION BY workload_id ORDER BY at, step ROWS UNBOUNDED PRECEDING
                ) AS level FROM steps
            ) s GROUP BY s.workload_id
        ),
        counts AS (
            SELECT t.workload_id, count(*) AS attempts, min(t.started_at) AS started_at, {_NODES[dialect]} AS nodes
            FROM {{rows}} i JOIN tasks t ON t.workload_id = i.id GROUP BY t.workload_id
        )
        SELECT w.id, w.name, w.kind, w.type, d.name, j.name, u.name, w.access_key, p.name, w.priority, w.replicas,
            coalesce(c.attempts, 0), w.requested_slots, ({_TIMES_REQUEST[dialect]}), coalesce(c.nodes, '[]'), w.status,
            w.reason, w.created_at, c.started_at, w.ended_at,
            {begun} - {epoch.format("w.created_at")}, {epoch.format("w.ended_at")} - {begun}
        FROM {{rows}} i
        JOIN workloads w ON w.id = i.id
        JOIN domains d ON d.id = w.domain_id
        JOIN projects j ON j.id = w.project_id
        JOIN users u ON u.id = w.user_id
        JOIN pools p ON p.id = w.pool_id
        LEFT JOIN counts c ON c.workload_id = w.id
        LEFT JOIN levels l ON l.workload_id = w.id
        WHERE true
        ON CONFLICT DO NOTHING
        """,
        {"id": "uuid"},
    )


_INSERT = {dialect: _insertion(dialect) for dialect in EPOCH}


def write(writes: Writes, workload_ids: Sequence[UUID]) -> None:
    """Record the workloads, if any, that end in the same transaction."""
    if workload_ids:
        writes.add(_INSERT[writes.dialect], [(id,) for id in workload_ids])


async def purge(connection: AsyncConnection, before: datetime, limit: int) -> int:
    record = workload_records.c
    oldest = select(record.workload_id).where(record.ended_at < before).order_by(record.ended_at).limit(limit)
    gone = record.workload_id.in_(oldest.correlate(None))
    return (await connection.execute(delete(workload_records).where(gone))).rowcount
