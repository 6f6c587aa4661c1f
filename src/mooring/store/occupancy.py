"""Who occupies how much: the ledger summed over all axes at once, for reports and proofs.

Passes and commits use the counters, which are these sums kept current.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.differences import OCCUPYING_LIST
from mooring.store.engine import without_haste
from mooring.store.sets import Statement
from mooring.store.types import as_uuid

Slots = dict[str, int]
K = TypeVar("K")


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
    for access_key, *ids, node_id, pool, slot, amount, charged in await connection.execute(
        text(statement(connection.dialect.name))
    ):
        if node_id is not None:
            found.nodes.setdefault(pool, {}).setdefault(as_uuid(node_id), {})[slot] = int(amount)
        elif access_key is not None:
            _put(found.keypairs, access_key, slot, charged)
        else:
            axis, id = next((axis, id) for axis, id in zip(tenants, ids, strict=True) if id is not None)
            _put(axis, as_uuid(id), slot, charged)
    return found


async def of_node(connection: AsyncConnection, node_id: UUID) -> Slots:
    """What is occupied of one node, found by index."""
    rows = await _OF_NODE.read(connection, [(node_id,)])
    return {slot: int(amount) for slot, amount in rows}


def _put(axis: dict[K, Slots], key: K, slot: str, charged: int) -> None:
    if charged:
        axis.setdefault(key, {})[slot] = int(charged)


def statement(dialect: str) -> str:
    """The one statement: groups of a row are told by which of its keys is not null."""
    return _BY_GROUPING_SETS if dialect == "postgresql" else _BY_UNION


# A task occupies what it requested until it is known what it uses.
_AMOUNT = "CASE WHEN a.used_at IS NULL THEN a.requested ELSE a.used END"
_IS_LIVE = "a.freed_at IS NULL AND t.node_id IS NOT NULL AND t.status <> 'PENDING'"
# Lost tasks are charged to their nodes alone, and so is private work.
_OCCUPIED = f"""
    SELECT w.access_key, w.user_id, w.project_id, w.domain_id, t.node_id, w.pool_id, a.slot_name, {_AMOUNT} AS amount,
        CASE WHEN w.private OR t.status NOT IN ({OCCUPYING_LIST}) THEN 0 ELSE {_AMOUNT} END AS charged
    FROM resource_allocations a JOIN tasks t ON t.id = a.task_id JOIN workloads w ON w.id = t.workload_id
    WHERE {_IS_LIVE}
"""
_NAMED = """
    SELECT s.access_key, s.user_id, s.project_id, s.domain_id, s.node_id, p.name, s.slot_name, s.amount, s.charged
    FROM sums s LEFT JOIN pools p ON p.id = s.pool_id
"""
_BY_GROUPING_SETS = f"""
    WITH sums AS (
        SELECT access_key, user_id, project_id, domain_id, node_id, pool_id, slot_name,
            sum(amount) AS amount, sum(charged) AS charged
        FROM ({_OCCUPIED}) AS occupied
        GROUP BY GROUPING SETS (
            (access_key, slot_name), (user_id, slot_name), (project_id, slot_name), (domain_id, slot_name),
            (node_id, pool_id, slot_name)
        )
    ) {_NAMED}
"""
_KEYS = ("access_key", "user_id", "project_id", "domain_id", "node_id")
_BY_UNION = (
    f"WITH occupied AS ({_OCCUPIED}), sums AS ("
    + " UNION ALL ".join(
        f"SELECT {', '.join(key if key == own else f'NULL AS {key}' for key in _KEYS)},"
        f" {'pool_id' if own == 'node_id' else 'NULL AS pool_id'}, slot_name,"
        f" sum(amount) AS amount, sum(charged) AS charged"
        f" FROM occupied GROUP BY {own}, {'pool_id, ' if own == 'node_id' else ''}slot_name"
        for own in _KEYS
    )
    + f") {_NAMED}"
)
_OF_NODE = Statement(
    f"""
    SELECT a.slot_name, sum({_AMOUNT}) FROM {{rows}} i JOIN tasks t ON t.node_id = i.id
    JOIN resource_allocations a ON a.task_id = t.id WHERE {_IS_LIVE} GROUP BY a.slot_name
    """,
    {"id": "uuid"},
)
