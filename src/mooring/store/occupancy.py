"""Who occupies how much: the ledger summed over all axes at once, for reports and proofs.

Passes and commits use the counters, which are these sums kept current.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.differences import OCCUPYING_LIST
from mooring.store.engine import without_haste
from mooring.store.sets import Statement
from mooring.store.types import as_uuid

Slots = dict[str, int]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """By slot what each occupies: tenants over all pools and without their private work, nodes by pool."""

    keypairs: dict[str, Slots] = field(default_factory=dict)
    users: dict[UUID, Slots] = field(default_factory=dict)
    projects: dict[UUID, Slots] = field(default_factory=dict)
    domains: dict[UUID, Slots] = field(default_factory=dict)
    nodes: dict[str, dict[UUID, Slots]] = field(default_factory=dict)


async def occupancy(connection: AsyncConnection) -> Occupancy:
    """All five axes from one statement, hence from one snapshot."""
    await without_haste(connection)
    found = Occupancy()
    tenants = (found.users, found.projects, found.domains)
    for access_key, *ids, node_id, pool, slot, amount in await connection.execute(
        text(statement(connection.dialect.name))
    ):
        if node_id is not None:
            found.nodes.setdefault(pool, {}).setdefault(as_uuid(node_id), {})[slot] = int(amount)
        elif access_key is not None:
            found.keypairs.setdefault(access_key, {})[slot] = int(amount)
        else:
            axis, id = next((axis, id) for axis, id in zip(tenants, ids, strict=True) if id is not None)
            axis.setdefault(as_uuid(id), {})[slot] = int(amount)
    return found


async def of_node(connection: AsyncConnection, node_id: UUID) -> Slots:
    """What is occupied of one node, found by index."""
    rows = await _OF_NODE.read(connection, [(node_id,)])
    return {slot: int(amount) for slot, amount in rows}


def statement(dialect: str) -> str:
    """The one statement: groups of a row are told by which of its keys is not null."""
    return _BY_GROUPING_SETS if dialect == "postgresql" else _BY_UNION


# A task occupies what it requested until it is known what it uses.
_AMOUNT = "CASE WHEN a.used_at IS NULL THEN a.requested ELSE a.used END"
_IS_LIVE = "a.freed_at IS NULL AND t.node_id IS NOT NULL AND t.status <> 'PENDING'"
_SUM = f"CAST(sum({_AMOUNT}) AS bigint) AS amount"
_CHARGED = f"t.status IN ({OCCUPYING_LIST})"
_LIVE = f"FROM resource_allocations a JOIN tasks t ON t.id = a.task_id WHERE {_IS_LIVE}"
_KEYS = ("access_key", "user_id", "project_id", "domain_id")
# Lost tasks are charged to their nodes alone, and so is private work.
_OF_TENANTS = "FROM sums s JOIN workloads w ON w.id = s.workload_id WHERE s.charged AND NOT w.private"
_OF_NODES = """
    SELECT NULL, NULL, NULL, NULL, s.node_id, p.name, s.slot_name, s.amount
    FROM sums s JOIN nodes n ON n.id = s.node_id JOIN pools p ON p.id = n.pool_id
"""
# Workloads and nodes are few beside the ledger's rows: these are read once, and the sums by workload summed by tenant.
_BY_GROUPING_SETS = f"""
    WITH sums AS (
        SELECT t.workload_id, {_CHARGED} AS charged, t.node_id, a.slot_name, {_SUM} {_LIVE}
        GROUP BY GROUPING SETS ((t.workload_id, 2, a.slot_name), (t.node_id, a.slot_name))
    )
    SELECT w.access_key, w.user_id, w.project_id, w.domain_id, CAST(NULL AS uuid), NULL, s.slot_name,
        CAST(sum(s.amount) AS bigint)
    {_OF_TENANTS} GROUP BY GROUPING SETS ({", ".join(f"(w.{key}, s.slot_name)" for key in _KEYS)})
    UNION ALL {_OF_NODES}
"""
_TENANTS_ONE_BY_ONE = " UNION ALL ".join(
    f"SELECT {', '.join(f'w.{key}' if key == own else 'NULL' for key in _KEYS)}, NULL, NULL, s.slot_name, sum(s.amount)"
    f" {_OF_TENANTS} GROUP BY w.{own}, s.slot_name"
    for own in _KEYS
)
_BY_UNION = f"""
    WITH sums AS (
        SELECT t.workload_id, {_CHARGED} AS charged, NULL AS node_id, a.slot_name, {_SUM} {_LIVE}
        GROUP BY t.workload_id, 2, a.slot_name
        UNION ALL SELECT NULL, NULL, t.node_id, a.slot_name, {_SUM} {_LIVE} GROUP BY t.node_id, a.slot_name
    )
    {_TENANTS_ONE_BY_ONE} UNION ALL {_OF_NODES}
"""
_OF_NODE = Statement(
    f"""
    SELECT a.slot_name, sum({_AMOUNT}) FROM {{rows}} i JOIN tasks t ON t.node_id = i.id
    JOIN resource_allocations a ON a.task_id = t.id WHERE {_IS_LIVE} GROUP BY a.slot_name
    """,
    {"id": "uuid"},
)
