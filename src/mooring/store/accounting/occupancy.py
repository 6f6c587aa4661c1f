"""Occupancy by keypair, user, project, domain and node, summed from the ledger in one query, for reports.

Scheduling passes and commits use the counters instead, which hold the same sums and are updated with each change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.audit.ledger_diff import OCCUPYING_LIST
from mooring.store.core.engine import allow_long_statements
from mooring.store.core.types import as_uuid

Slots = dict[str, int]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Occupied amounts by slot: of tenants across all pools, and of nodes by pool.

    Lost tasks, private workloads and workloads in timeslots count for nodes only.
    """

    keypairs: dict[str, Slots] = field(default_factory=dict)
    users: dict[UUID, Slots] = field(default_factory=dict)
    projects: dict[UUID, Slots] = field(default_factory=dict)
    domains: dict[UUID, Slots] = field(default_factory=dict)
    nodes: dict[str, dict[UUID, Slots]] = field(default_factory=dict)


async def occupancy(connection: AsyncConnection) -> Occupancy:
    """Return all five groupings from one statement, hence from one snapshot.

    Exactly one of the keys in each row is not null; it identifies the grouping.
    """
    await allow_long_statements(connection)
    found = Occupancy()
    tenants = (found.users, found.projects, found.domains)
    for access_key, *ids, node_id, pool, slot, amount, charged in await connection.execute(
        text(_BY_GROUPING_SETS if connection.dialect.name == "postgresql" else _BY_UNION)
    ):
        if node_id is not None:
            found.nodes.setdefault(pool, {}).setdefault(as_uuid(node_id), {})[slot] = int(amount)
        elif access_key is not None:
            _put(found.keypairs, access_key, slot, charged)
        else:
            axis, id = next((axis, id) for axis, id in zip(tenants, ids, strict=True) if id is not None)
            _put(axis, as_uuid(id), slot, charged)
    return found


def _put(axis: dict[K, Slots], key: K, slot: str, charged: int) -> None:
    if charged:
        axis.setdefault(key, {})[slot] = int(charged)


# A task occupies its request until it has started.
AMOUNT = "CASE WHEN a.used_at IS NULL THEN a.requested ELSE a.used END"
_IS_LIVE = "a.freed_at IS NULL AND t.node_id IS NOT NULL AND t.status <> 'PENDING'"
_LEDGER = "FROM resource_allocations a JOIN tasks t ON t.id = a.task_id"
# Sums by owner and by node first: this leaves few rows, and PostgreSQL computes both in parallel. Lost tasks, private
# workloads and workloads in timeslots are charged to their nodes alone.
_OCCUPIED = f"""
    WITH by_owner AS (
        SELECT w.access_key, w.user_id, w.project_id, w.domain_id, a.slot_name, sum({AMOUNT}) AS charged
        {_LEDGER} JOIN workloads w ON w.id = t.workload_id
        WHERE {_IS_LIVE} AND t.status IN ({OCCUPYING_LIST}) AND NOT w.private AND w.timeslot_id IS NULL
        GROUP BY w.access_key, w.user_id, w.project_id, w.domain_id, a.slot_name
    ),
    by_node AS (
        SELECT t.node_id, a.slot_name, sum({AMOUNT}) AS amount {_LEDGER} WHERE {_IS_LIVE}
        GROUP BY t.node_id, a.slot_name
    ),
    occupied AS (
        SELECT access_key, user_id, project_id, domain_id, NULL AS node_id, NULL AS pool, slot_name,
            0 AS amount, charged
        FROM by_owner
        UNION ALL
        SELECT NULL, NULL, NULL, NULL, s.node_id, p.name, s.slot_name, s.amount, 0
        FROM by_node s JOIN nodes n ON n.id = s.node_id JOIN pools p ON p.id = n.pool_id
    )
"""
_KEYS = ("access_key", "user_id", "project_id", "domain_id", "node_id")
_BY_GROUPING_SETS = f"""
    {_OCCUPIED.replace("NULL AS node_id", "CAST(NULL AS uuid) AS node_id")}
    SELECT {", ".join(_KEYS)}, pool, slot_name, sum(amount), sum(charged) FROM occupied
    GROUP BY GROUPING SETS (
        (access_key, slot_name), (user_id, slot_name), (project_id, slot_name), (domain_id, slot_name),
        (node_id, pool, slot_name)
    )
    HAVING access_key IS NOT NULL OR coalesce(user_id, project_id, domain_id, node_id) IS NOT NULL
"""


def _axis(own: str) -> str:
    """Return a query for the sums by one key, with null for the others."""
    keys = ", ".join(key if key == own else "NULL" for key in _KEYS)
    return (
        f"SELECT {keys}, pool, slot_name, sum(amount), sum(charged) FROM occupied"
        f" WHERE {own} IS NOT NULL GROUP BY {own}, pool, slot_name"
    )


_BY_UNION = f"{_OCCUPIED} {' UNION ALL '.join(map(_axis, _KEYS))}"
