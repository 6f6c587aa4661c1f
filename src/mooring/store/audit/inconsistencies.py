"""Tasks and workloads whose records may disagree: one query per rule, which returns ids.

`audit.tasks` and `audit.workloads` then examine these objects and decide whether something is wrong.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, is_end
from mooring.store.core.engine import writes_ledger_copies
from mooring.store.core.types import as_uuid

_OCCUPYING = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_ENDS = ", ".join(f"'{status}'" for status in TaskStatus if is_end(status))
# A task gets one of these statuses only when nothing of it is left on its node.
_ENDS_FREED = "'SUCCEEDED', 'CANCELLED'"


async def in_tasks(connection: AsyncConnection) -> list[UUID]:
    """Return the ids of tasks whose records may disagree, in order."""
    dialect = connection.dialect.name
    rules = [_LEDGER, _HELD_AT, _TASKS, _HISTORY, _HOLDS, _DEVICES, _DEVICE_SUMS]
    rules += [_requested(dialect), _devices(dialect), _ports(dialect)]
    if writes_ledger_copies(connection):
        rules.append(_occupied(dialect))
    return await _ids(connection, rules)


async def in_workloads(connection: AsyncConnection) -> list[UUID]:
    dialect = connection.dialect.name
    return await _ids(connection, [_WORKLOAD_HISTORY, _WORKLOAD_ENDS, _ARRAY_INDEXES, _workload_requests(dialect)])


async def _ids(connection: AsyncConnection, rules: list[str]) -> list[UUID]:
    found: set[UUID] = set()
    for rule in rules:
        found.update(as_uuid(id) for (id,) in await connection.execute(text(rule)))
    return sorted(found)


# The column of the ledger rows that has the amounts of a task, by its status and its timestamps.
_COLUMN = """
    CASE WHEN t.status = 'PENDING' THEN 'none' WHEN t.status = 'RESERVED' THEN 'held'
        WHEN t.status IN ('SCHEDULED', 'PREPARING') THEN 'reserved'
        WHEN t.status = 'RUNNING' OR t.started_at IS NOT NULL THEN 'used'
        WHEN t.scheduled_at IS NOT NULL THEN 'reserved' WHEN t.node_name IS NOT NULL THEN 'held' ELSE 'none' END
"""
_ARRAY_INDEXES = """
    SELECT w.id FROM workloads w LEFT JOIN tasks t ON t.workload_id = w.id AND t.current
    WHERE w.array IS NOT NULL
    GROUP BY w.id, w.next_index, w.replicas
    HAVING count(DISTINCT CASE WHEN t.task_index < w.next_index THEN t.task_index END) <> w.next_index
        OR max(CASE WHEN t.task_index >= w.next_index AND t.status <> 'CANCELLED' THEN 1 ELSE 0 END) = 1
        OR max(t.task_index) >= w.replicas OR w.next_index > w.replicas
"""
_LEDGER = f"""
    SELECT DISTINCT r.task_id FROM (
        SELECT a.*, {_COLUMN} AS expected, t.created_at AS made_at, t.scheduled_at, t.started_at,
            t.freed_at AS left_at, t.status
        FROM resource_allocations a LEFT JOIN tasks t ON t.id = a.task_id
    ) AS r
    WHERE r.status IS NULL
        OR r.held <> CASE r.expected WHEN 'held' THEN r.requested ELSE 0 END
        OR r.reserved <> CASE r.expected WHEN 'reserved' THEN r.requested ELSE 0 END
        OR r.used <> CASE r.expected WHEN 'used' THEN r.requested ELSE 0 END
        OR r.created_at IS DISTINCT FROM r.made_at OR r.reserved_at IS DISTINCT FROM r.scheduled_at
        OR r.used_at IS DISTINCT FROM r.started_at OR r.freed_at IS DISTINCT FROM r.left_at
        OR r.expected = 'held' AND r.held_at IS NULL OR r.status = 'PENDING' AND r.held_at IS NOT NULL
"""
_HELD_AT = """
    SELECT a.task_id FROM resource_allocations a GROUP BY a.task_id
    HAVING min(a.held_at) IS DISTINCT FROM max(a.held_at) OR count(a.held_at) NOT IN (0, count(*))
"""
_TASKS = f"""
    SELECT t.id FROM tasks t LEFT JOIN nodes n ON n.id = t.node_id
    WHERE t.node_id IS NOT NULL AND n.name IS DISTINCT FROM t.node_name
        OR t.scheduled_at IS NULL AND t.started_at IS NOT NULL
        OR t.status = 'PENDING' AND (
            t.node_id IS NOT NULL OR t.node_name IS NOT NULL OR t.scheduled_at IS NOT NULL OR t.ended_at IS NOT NULL
            OR t.freed_at IS NOT NULL OR t.ports IS NOT NULL OR t.devices IS NOT NULL
        )
        OR t.status IN ({_OCCUPYING}) AND (
            t.node_id IS NULL OR t.node_name IS NULL OR t.ended_at IS NOT NULL OR t.freed_at IS NOT NULL
        )
        OR t.status = 'RESERVED' AND t.scheduled_at IS NOT NULL
        OR t.status IN ('SCHEDULED', 'PREPARING', 'RUNNING', 'TERMINATING') AND t.scheduled_at IS NULL
        OR t.status IN ('SCHEDULED', 'PREPARING') AND t.started_at IS NOT NULL
        OR t.status = 'RUNNING' AND t.started_at IS NULL
        OR t.status IN ({_ENDS}) AND t.ended_at IS NULL
        OR t.status IN ({_ENDS}) AND t.freed_at IS NULL AND (t.node_id IS NULL OR t.status IN ({_ENDS_FREED}))
        OR t.status IN ({_ENDS_FREED}) AND t.freed_at <> t.ended_at
        OR t.status IN ({_ENDS}) AND t.freed_at IS NOT NULL AND (t.ports IS NOT NULL OR t.devices IS NOT NULL)
"""
_HISTORY = f"""
    WITH past AS (
        SELECT h.object_id, max(h.id) AS last, max(CASE h.old_status WHEN 'PENDING' THEN 1 ELSE 0 END) AS whole,
            max(CASE h.new_status WHEN 'RESERVED' THEN h.at END) AS held_at,
            max(CASE h.new_status WHEN 'RESERVED' THEN h.id END) AS held,
            max(CASE h.new_status WHEN 'PENDING' THEN h.id END) AS given_up,
            max(CASE h.new_status WHEN 'SCHEDULED' THEN h.at END) AS scheduled_at,
            max(CASE h.new_status WHEN 'RUNNING' THEN h.at END) AS started_at,
            max(CASE WHEN h.new_status IN ({_ENDS}) THEN h.at END) AS ended_at
        FROM status_history h WHERE h.noun = 'task' AND h.actor NOT LIKE 'repair:%' GROUP BY h.object_id
    )
    SELECT t.id FROM past p JOIN status_history l ON l.id = p.last JOIN tasks t ON t.id = p.object_id
    WHERE l.new_status <> t.status
        OR p.scheduled_at IS NOT NULL AND p.scheduled_at IS DISTINCT FROM t.scheduled_at
        OR p.started_at IS NOT NULL AND p.started_at IS DISTINCT FROM t.started_at
        OR p.ended_at IS NOT NULL AND p.ended_at IS DISTINCT FROM t.ended_at
        OR p.whole = 1 AND t.status <> 'PENDING' AND EXISTS (
            SELECT 1 FROM resource_allocations a WHERE a.task_id = t.id
                AND a.held_at IS DISTINCT FROM CASE WHEN p.given_up > p.held THEN NULL ELSE p.held_at END
        )
"""
_HOLDS = """
    SELECT t.id FROM tasks t LEFT JOIN holds h ON h.task_id = t.id
    WHERE t.status = 'RESERVED' AND h.id IS NULL OR t.status <> 'RESERVED' AND h.id IS NOT NULL
        OR h.node_id <> t.node_id OR h.workload_id <> t.workload_id
        OR EXISTS (
            SELECT 1 FROM resource_allocations a
            WHERE a.task_id = h.task_id AND a.held_at IS DISTINCT FROM h.created_at
        )
"""
_DEVICES = """
    SELECT a.task_id FROM device_allocations a LEFT JOIN tasks t ON t.id = a.task_id
    WHERE t.id IS NULL OR a.freed_at IS DISTINCT FROM t.freed_at OR a.node_id <> t.node_id OR t.status = 'PENDING'
"""
_DEVICE_SUMS = """
    SELECT d.task_id FROM (
        SELECT task_id, slot_name, sum(amount) AS amount FROM device_allocations GROUP BY task_id, slot_name
    ) AS d
    LEFT JOIN resource_allocations a ON a.task_id = d.task_id AND a.slot_name = d.slot_name
    WHERE d.amount IS DISTINCT FROM a.requested
"""


def _requested(dialect: str) -> str:
    """Compare `tasks.requested_slots` with the ledger. Amounts are compared as text: a cell may hold anything."""
    ledger = "SELECT a.task_id AS id, a.slot_name AS name, CAST(a.requested AS text) AS amount"
    return _differing(
        f"{ledger} FROM resource_allocations a",
        f"SELECT t.id, s.key, CAST(s.value AS text) FROM tasks t, {_members(dialect, 't.requested_slots')} s",
    )


def _occupied(dialect: str) -> str:
    """Compare `tasks.occupied_slots` with the request of tasks that have a node and are not freed."""
    occupies = "t.node_id IS NOT NULL AND t.freed_at IS NULL AND t.status <> 'PENDING'"
    ledger = "SELECT a.task_id AS id, a.slot_name AS name, CAST(a.requested AS text) AS amount"
    return _differing(
        f"{ledger} FROM resource_allocations a JOIN tasks t ON t.id = a.task_id WHERE {occupies}",
        f"SELECT t.id, s.key, CAST(s.value AS text) FROM tasks t, {_members(dialect, 't.occupied_slots')} s",
    )


def _devices(dialect: str) -> str:
    rows = "SELECT a.task_id AS id, a.slot_name AS name, CAST(a.device_index AS text) AS device"
    elements = _elements(dialect, "s.value")
    return _differing(
        f"{rows}, CAST(a.amount AS text) AS amount FROM device_allocations a WHERE a.freed_at IS NULL",
        "SELECT t.id, s.key, CAST(e.value ->> 0 AS text), CAST(e.value ->> 1 AS text)"
        f" FROM tasks t, {_members(dialect, 't.devices', whole=True)} s, {elements} e",
    )


def _ports(dialect: str) -> str:
    rows = "SELECT p.task_id AS id, p.node_id, p.protocol, CAST(p.port AS text) AS port FROM port_allocations p"
    return _differing(
        rows,
        "SELECT t.id, t.node_id, CAST(e.value ->> 0 AS text), CAST(e.value ->> 1 AS text)"
        f" FROM tasks t, {_elements(dialect, 't.ports')} e",
    )


def _workload_requests(dialect: str) -> str:
    """Compare `workloads.requested_slots` with the tasks of the same revision, and with the revision."""
    own = _members(dialect, "w.requested_slots")
    of_task, of_revision = _members(dialect, "t.requested_slots"), _members(dialect, "r.requested_slots")
    of_workload = "SELECT w.id, s.key, CAST(s.value AS text)"
    tasks = _differing(
        f"SELECT DISTINCT w.id AS id, s.key AS name, CAST(s.value AS text) AS amount FROM workloads w, {own} s"
        " WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.workload_id = w.id AND t.revision = w.revision)",
        f"{of_workload} FROM workloads w JOIN tasks t ON t.workload_id = w.id AND t.revision = w.revision, {of_task} s",
    )
    revisions = _differing(
        f"SELECT w.id AS id, s.key AS name, CAST(s.value AS text) AS amount FROM workloads w"
        f" JOIN workload_revisions r ON r.workload_id = w.id AND r.number = w.revision, {own} s",
        f"{of_workload} FROM workloads w JOIN workload_revisions r"
        f" ON r.workload_id = w.id AND r.number = w.revision, {of_revision} s",
    )
    return f"SELECT id FROM ({tasks}) AS a UNION SELECT id FROM ({revisions}) AS b"


def _differing(one: str, other: str) -> str:
    """Return a query for the ids of rows that only one of two queries returns."""
    return f"""
        SELECT a.id FROM ({one} EXCEPT {other}) AS a UNION SELECT b.id FROM (
            SELECT * FROM ({other}) AS c EXCEPT SELECT * FROM ({one}) AS d
        ) AS b
    """


def _members(dialect: str, column: str, *, whole: bool = False) -> str:
    """Return SQL for the members of a JSON object; no members for anything else. `whole`: with their values as JSON."""
    if dialect == "sqlite":
        return f"json_each({column})"
    each = "jsonb_each" if whole else "jsonb_each_text"
    return f"{each}(CASE jsonb_typeof({column}) WHEN 'object' THEN {column} ELSE '{{}}' END)"


def _elements(dialect: str, column: str) -> str:
    if dialect == "sqlite":
        return f"json_each({column})"
    return f"jsonb_array_elements(CASE jsonb_typeof({column}) WHEN 'array' THEN {column} ELSE '[]' END)"


_WORKLOAD_HISTORY = """
    SELECT w.id FROM (
        SELECT object_id, max(id) AS last FROM status_history
        WHERE noun = 'workload' AND actor NOT LIKE 'repair:%' GROUP BY object_id
    ) AS p
    JOIN status_history l ON l.id = p.last JOIN workloads w ON w.id = p.object_id WHERE l.new_status <> w.status
"""
_WORKLOAD_ENDS = """
    SELECT w.id FROM workloads w
    WHERE (w.status IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'EXPIRED')) <> (w.ended_at IS NOT NULL)
"""
