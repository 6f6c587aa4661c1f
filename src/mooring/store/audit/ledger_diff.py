"""Differences between the ledger and the counters of nodes, tenants and devices: one query each.

The database compares and returns differences only, so that a million rows need no memory here.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING
from mooring.model.tenancy.quotas import PRIVATE_SESSIONS, SESSIONS
from mooring.model.workloads.volumes import STORAGE
from mooring.store.core.types import as_uuid

OCCUPYING_LIST = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_IS_LIVE = "a.freed_at IS NULL AND t.node_id IS NOT NULL AND t.status <> 'PENDING'"


class NodeDiff(NamedTuple):
    """A counter of a node: (held, reserved, used, leaving). `node`: its name; None if it has no such counter."""

    node_id: UUID
    slot: str
    node: str | None
    expected: tuple[int, ...]
    found: tuple[int, ...]


class TenantDiff(NamedTuple):
    """A counter of a tenant: (reserved, used)."""

    scope: str
    tenant_id: str
    pool: str
    slot: str
    expected: tuple[int, int]
    found: tuple[int, int]
    exists: bool


class DeviceDiff(NamedTuple):
    node_id: UUID
    slot: str
    device: int
    node: str | None
    expected: int
    found: int


class Overbooked(NamedTuple):
    """A node with more capacity reserved for timeslots at one time than it has."""

    node: str
    slot: str
    allocatable: int
    promised: int


async def of_nodes(connection: AsyncConnection) -> list[NodeDiff]:
    rows = await connection.execute(text(_NODES))
    return [
        NodeDiff(as_uuid(row[0]), row[1], row[2], tuple(map(int, row[3:7])), tuple(map(int, row[7:11]))) for row in rows
    ]


async def of_tenants(connection: AsyncConnection) -> list[TenantDiff]:
    """Return differences in the order of their keys, which is the lock order."""
    ids = {f"{name}_text": _as_text(connection, f"{name}_id") for name in ("user", "project", "domain")}
    rows = await connection.execute(text(_TENANTS.format(**ids)))
    return [
        TenantDiff(row[0], row[1], row[2], row[3], (int(row[4]), int(row[5])), (int(row[6]), int(row[7])), bool(row[8]))
        for row in sorted(rows, key=tuple)
    ]


async def of_devices(connection: AsyncConnection) -> list[DeviceDiff]:
    rows = await connection.execute(text(_DEVICES))
    return [DeviceDiff(as_uuid(row[0]), row[1], row[2], row[3], int(row[4]), int(row[5])) for row in rows]


async def of_timeslots(connection: AsyncConnection) -> list[Overbooked]:
    """Return nodes that are overbooked by timeslots at some time.

    Timeslots at risk are known to lack capacity, and maintenance overrides bookings, so neither counts.
    """
    rows = await connection.execute(text(_OVERBOOKED.format(unfolded=_unfolded_request(connection))))
    return [Overbooked(node, slot, int(allocatable), int(promised)) for node, slot, allocatable, promised in rows]


def _unfolded_request(connection: AsyncConnection) -> str:
    each = "jsonb_each_text" if connection.dialect.name == "postgresql" else "json_each"
    return f"{each}(s.requested_slots)"


def _as_text(connection: AsyncConnection, column: str) -> str:
    """Return SQL for an id as the counters of tenants store it; SQLite stores ids without hyphens."""
    if connection.dialect.name == "postgresql":
        return f"CAST({column} AS text)"
    parts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    return " || '-' || ".join(f"substr({column}, {start}, {length})" for start, length in parts)


_NODES = f"""
    SELECT c.node_id, c.slot_name, max(c.node),
        sum(c.held), sum(c.reserved), sum(c.used), sum(c.leaving),
        sum(c.counted_held), sum(c.counted_reserved), sum(c.counted_used), sum(c.counted_leaving)
    FROM (
        SELECT t.node_id, a.slot_name, NULL AS node,
            sum(a.held) AS held, sum(a.reserved) AS reserved, sum(a.used) AS used,
            sum(CASE WHEN t.preempted_by IS NULL THEN 0 ELSE a.held + a.reserved + a.used END) AS leaving,
            0 AS counted_held, 0 AS counted_reserved, 0 AS counted_used, 0 AS counted_leaving
        FROM resource_allocations a JOIN tasks t ON t.id = a.task_id
        WHERE {_IS_LIVE} GROUP BY t.node_id, a.slot_name
        UNION ALL
        SELECT v.node_id, '{STORAGE}', NULL, 0, 0, sum(v.size), 0, 0, 0, 0, 0
        FROM volumes v WHERE v.node_id IS NOT NULL GROUP BY v.node_id
        UNION ALL
        SELECT r.node_id, r.slot_name, n.name, 0, 0, 0, 0, r.held, r.reserved, r.used, r.leaving
        FROM node_resources r JOIN nodes n ON n.id = r.node_id
    ) AS c
    GROUP BY c.node_id, c.slot_name
    HAVING sum(c.held) <> sum(c.counted_held) OR sum(c.reserved) <> sum(c.counted_reserved)
        OR sum(c.used) <> sum(c.counted_used) OR sum(c.leaving) <> sum(c.counted_leaving)
    ORDER BY max(c.node), c.slot_name
"""

# Sums by workload first, then by owner and pool, which leaves few rows; then for each tenant that is charged.
_TENANTS = f"""
    WITH charged AS (
        SELECT w.access_key, w.user_id, w.project_id, w.domain_id, p.name AS pool, o.slot_name,
            sum(o.reserved) AS reserved, sum(o.used) AS used
        FROM (
            SELECT t.workload_id, a.slot_name, sum(a.used) AS used,
                sum(CASE WHEN a.used_at IS NULL THEN a.held + a.reserved ELSE 0 END) AS reserved
            FROM tasks t JOIN resource_allocations a ON a.task_id = t.id
            WHERE t.status IN ({OCCUPYING_LIST}) AND a.freed_at IS NULL GROUP BY t.workload_id, a.slot_name
        ) AS o JOIN workloads w ON w.id = o.workload_id JOIN pools p ON p.id = w.pool_id
        WHERE NOT w.private AND w.timeslot_id IS NULL
        GROUP BY w.access_key, w.user_id, w.project_id, w.domain_id, p.name, o.slot_name
        UNION ALL
        SELECT w.access_key, w.user_id, w.project_id, w.domain_id, p.name,
            CASE WHEN w.private THEN '{PRIVATE_SESSIONS}' ELSE '{SESSIONS}' END, 0, count(*)
        FROM workloads w JOIN pools p ON p.id = w.pool_id
        WHERE w.id IN (SELECT t.workload_id FROM tasks t WHERE t.status IN ({OCCUPYING_LIST}))
        GROUP BY w.access_key, w.user_id, w.project_id, w.domain_id, p.name, w.private
    ),
    stored AS (
        SELECT v.project_id, o.domain_id, p.name AS pool, '{STORAGE}' AS slot_name, 0 AS reserved, sum(v.size) AS used
        FROM volumes v JOIN projects o ON o.id = v.project_id JOIN pools p ON p.id = v.pool_id
        GROUP BY v.project_id, o.domain_id, p.name
    ),
    of_projects AS (
        SELECT project_id, domain_id, pool, slot_name, reserved, used FROM charged
        UNION ALL SELECT project_id, domain_id, pool, slot_name, reserved, used FROM stored
    ),
    expected AS (
        SELECT 'keypair' AS scope, access_key AS tenant_id, '' AS pool, slot_name, reserved, used FROM charged
        UNION ALL SELECT 'user', {{user_text}}, '', slot_name, reserved, used FROM charged
        UNION ALL SELECT 'user', {{user_text}}, pool, slot_name, reserved, used FROM charged
        UNION ALL SELECT 'project', {{project_text}}, '', slot_name, reserved, used FROM of_projects
        UNION ALL SELECT 'project', {{project_text}}, pool, slot_name, reserved, used FROM of_projects
        UNION ALL SELECT 'domain', {{domain_text}}, '', slot_name, reserved, used FROM of_projects
    )
    SELECT c.scope, c.tenant_id, c.pool, c.slot_name,
        sum(c.reserved), sum(c.used), sum(c.counted_reserved), sum(c.counted_used), max(c.counted)
    FROM (
        SELECT scope, tenant_id, pool, slot_name, reserved, used, 0 AS counted_reserved, 0 AS counted_used, 0 AS counted
        FROM expected
        UNION ALL
        SELECT scope, tenant_id, pool, slot_name, 0, 0, reserved, used, 1 FROM tenant_resources
    ) AS c
    GROUP BY c.scope, c.tenant_id, c.pool, c.slot_name
    HAVING sum(c.reserved) <> sum(c.counted_reserved) OR sum(c.used) <> sum(c.counted_used)
"""

_DEVICES = """
    SELECT c.node_id, c.slot_name, c.device_index, max(c.node), sum(c.given), sum(c.taken)
    FROM (
        SELECT a.node_id, a.slot_name, a.device_index, NULL AS node, sum(a.amount) AS given, 0 AS taken
        FROM device_allocations a WHERE a.freed_at IS NULL GROUP BY a.node_id, a.slot_name, a.device_index
        UNION ALL
        SELECT d.node_id, d.slot_name, d.device_index, n.name, 0, d.taken
        FROM node_devices d JOIN nodes n ON n.id = d.node_id
    ) AS c
    GROUP BY c.node_id, c.slot_name, c.device_index
    HAVING sum(c.given) <> sum(c.taken)
    ORDER BY max(c.node), c.slot_name, c.device_index
"""

# A timeslot that ends frees its capacity for one that begins at the same moment.
_OVERBOOKED = """
    WITH promised AS (
        SELECT p.node_id, q.key AS slot_name, s.eligible_at, s.ends_at, p.tasks * CAST(q.value AS bigint) AS amount
        FROM timeslots s JOIN timeslot_places p ON p.timeslot_id = s.id, {unfolded} AS q
        WHERE s.ended_at IS NULL AND s.status IN ('CONFIRMED', 'ACTIVE') AND s.kind <> 'maintenance'
    ),
    steps AS (
        SELECT node_id, slot_name, eligible_at AS at, 1 AS begins, amount FROM promised
        UNION ALL SELECT node_id, slot_name, ends_at, 0, -amount FROM promised
    ),
    sums AS (
        SELECT node_id, slot_name, sum(amount) OVER (
            PARTITION BY node_id, slot_name ORDER BY at, begins ROWS UNBOUNDED PRECEDING
        ) AS promised FROM steps
    )
    SELECT n.name, sums.slot_name, max(coalesce(r.allocatable, 0)), max(sums.promised)
    FROM sums JOIN nodes n ON n.id = sums.node_id
    LEFT JOIN node_resources r ON r.node_id = sums.node_id AND r.slot_name = sums.slot_name
    WHERE sums.promised > coalesce(r.allocatable, 0)
    GROUP BY n.name, sums.slot_name ORDER BY n.name, sums.slot_name
"""
