"""Who occupies what, from the live rows of the ledger: all axes in one statement, or one node.

Tenants over all pools together, as `store.charges` counts them; nodes with everything that is on them, pool by pool.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.store.types import Id

_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_AMOUNTS = "sum(a.held + a.reserved) AS reserved, sum(a.used) AS used"
_CHARGED = f"t.status IN ({_occupying})"
_LIVE = """
    FROM resource_allocations a JOIN tasks t ON t.id = a.task_id WHERE a.freed_at IS NULL AND t.node_id IS NOT NULL
"""
# The ledger's rows by workload and by node: PostgreSQL makes both sums in one reading.
_SUMS = {
    "postgresql": f"""
        SELECT t.workload_id, {_CHARGED} AS charged, t.node_id, a.slot_name, {_AMOUNTS} {_LIVE}
        GROUP BY GROUPING SETS ((t.workload_id, 2, a.slot_name), (t.node_id, a.slot_name))
    """,
    "sqlite": f"""
        SELECT t.workload_id, {_CHARGED} AS charged, NULL AS node_id, a.slot_name, {_AMOUNTS} {_LIVE}
        GROUP BY t.workload_id, 2, a.slot_name
        UNION ALL
        SELECT NULL, NULL, t.node_id, a.slot_name, {_AMOUNTS} {_LIVE} GROUP BY t.node_id, a.slot_name
    """,
}
# A lost task is charged to its node alone, and so is private work.
_BY_AXIS = """
    , tenants AS (
        SELECT w.access_key, w.user_id, w.project_id, w.domain_id, s.slot_name, sum(s.reserved) AS reserved,
            sum(s.used) AS used
        FROM sums s JOIN workloads w ON w.id = s.workload_id WHERE s.charged AND NOT w.private
        GROUP BY w.access_key, w.user_id, w.project_id, w.domain_id, s.slot_name
    )
    SELECT 'keypair', '', access_key, slot_name, sum(reserved), sum(used) FROM tenants GROUP BY access_key, slot_name
    UNION ALL SELECT 'user', '', CAST(user_id AS text), slot_name, sum(reserved), sum(used)
    FROM tenants GROUP BY user_id, slot_name
    UNION ALL SELECT 'project', '', CAST(project_id AS text), slot_name, sum(reserved), sum(used)
    FROM tenants GROUP BY project_id, slot_name
    UNION ALL SELECT 'domain', '', CAST(domain_id AS text), slot_name, sum(reserved), sum(used)
    FROM tenants GROUP BY domain_id, slot_name
    UNION ALL SELECT 'node', p.name, CAST(s.node_id AS text), s.slot_name, s.reserved, s.used
    FROM sums s JOIN nodes n ON n.id = s.node_id JOIN pools p ON p.id = n.pool_id
"""
_ALL_AXES = {dialect: text(f"WITH sums AS ({sums}) {_BY_AXIS}") for dialect, sums in _SUMS.items()}
_charging = ", ".join(f"'{status}'" for status in sorted({*OCCUPYING, TaskStatus.LOST}))
_OF_NODE = text(
    f"""
    SELECT a.slot_name, {_AMOUNTS} FROM tasks t JOIN resource_allocations a ON a.task_id = t.id
    WHERE t.node_id = :node_id AND t.status IN ({_charging}) AND a.freed_at IS NULL GROUP BY a.slot_name
    """
).bindparams(bindparam("node_id", type_=Id))


class Occupied(NamedTuple):
    axis: str
    """`keypair`, `user`, `project`, `domain` or `node`."""
    pool: str
    """Of a node; empty for tenants."""
    id: str
    """A keypair's access key, the others' id."""
    slot: str
    reserved: int
    """With what is held."""
    used: int


async def all_axes(connection: AsyncConnection) -> list[Occupied]:
    """For audits and reports: a pass uses the counters."""
    dialect = connection.dialect.name
    rows = await connection.execute(_ALL_AXES[dialect])
    bare = dialect == "sqlite"
    return [
        Occupied(axis, pool, str(UUID(id)) if bare and axis != "keypair" else id, slot, int(reserved), int(used))
        for axis, pool, id, slot, reserved, used in rows
    ]


async def of_node(connection: AsyncConnection, node_id: UUID) -> dict[str, tuple[int, int]]:
    """By slot what is reserved, with what is held, and used on one node."""
    rows = await connection.execute(_OF_NODE, {"node_id": node_id})
    return {slot: (int(reserved), int(used)) for slot, reserved, used in rows}
