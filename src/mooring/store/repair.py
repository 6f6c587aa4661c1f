"""The repair: counters and readable copies written anew from the ledger, where they differ from it and nowhere else."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.store import differences, events, ledger
from mooring.store.engine import keeps_copies, without_haste
from mooring.store.ledger import Finding
from mooring.store.sets import Statement, Writes, among
from mooring.store.tables import device_allocations, nodes, resource_allocations, tasks

_NODES = Statement(
    """
    UPDATE node_resources AS r SET held = i.held, reserved = i.reserved, used = i.used, leaving = i.leaving
    FROM {rows} i WHERE r.node_id = i.node_id AND r.slot_name = i.slot_name
    """,
    {
        "node_id": "uuid",
        "slot_name": "text",
        "held": "bigint",
        "reserved": "bigint",
        "used": "bigint",
        "leaving": "bigint",
    },
)
_TENANTS = Statement(
    """
    INSERT INTO tenant_resources (scope, tenant_id, pool, slot_name, reserved, used)
    SELECT i.scope, i.tenant_id, i.pool, i.slot_name, i.reserved, i.used FROM {rows} i WHERE true ORDER BY i.ordinal
    ON CONFLICT (scope, tenant_id, pool, slot_name) DO UPDATE SET reserved = excluded.reserved, used = excluded.used
    """,
    {
        "scope": "text",
        "tenant_id": "text",
        "pool": "text",
        "slot_name": "text",
        "reserved": "bigint",
        "used": "bigint",
    },
)
_DEVICES = Statement(
    """
    UPDATE node_devices AS d SET taken = i.taken
    FROM {rows} i WHERE d.node_id = i.node_id AND d.slot_name = i.slot_name AND d.device_index = i.device_index
    """,
    {"node_id": "uuid", "slot_name": "text", "device_index": "bigint", "taken": "bigint"},
)
_COPIES = {
    column: Statement(
        f"UPDATE tasks AS t SET {column} = i.copy, version = t.version + 1 FROM {{rows}} i WHERE t.id = i.id",
        {"id": "uuid", "copy": "jsonb"},
    )
    for column in ("requested_slots", "occupied_slots", "devices")
}


async def repair(connection: AsyncConnection, now: datetime) -> list[Finding]:
    """Set right what the ledger proves to be wrong; what was wrong. Where nothing is, nothing is written."""
    await without_haste(connection)
    # Whoever moves what tasks occupy holds the rows of their nodes: from here on nobody does.
    await connection.execute(select(nodes.c.id).order_by(nodes.c.id).with_for_update(key_share=True))
    wrong = [*await ledger.wrong_sums(connection), *await ledger.wrong_copies(connection)]
    if not wrong:
        return []
    told: list[events.NewEvent] = []
    touched = await _repair_copies(connection)
    told += [events.NewEvent("task", id, version, "repaired", None, owner) for id, version, owner in touched]
    touched_nodes = await _repair_nodes(connection)
    told += [events.NewEvent("node", id, 0, "repaired", id) for id in sorted(touched_nodes)]
    told += [events.NewEvent("tenant", id, 0, events.USAGE) for id in sorted(await _repair_tenants(connection))]
    await events.append(connection, told, now)
    return wrong


async def _repair_nodes(connection: AsyncConnection) -> set[UUID]:
    writes = Writes.on(connection)
    counters = [found for found in await differences.of_nodes(connection) if found.node is not None]
    if counters:
        writes.add(_NODES, [(found.node_id, found.slot, *found.expected) for found in counters])
    devices = [found for found in await differences.of_devices(connection) if found.node is not None]
    if devices:
        writes.add(_DEVICES, [(found.node_id, found.slot, found.device, found.expected) for found in devices])
    await writes.make(connection)
    return {found.node_id for found in counters} | {found.node_id for found in devices}


async def _repair_tenants(connection: AsyncConnection) -> set[UUID]:
    writes = Writes.on(connection)
    found = await differences.of_tenants(connection)
    if found:
        writes.add(_TENANTS, [(*wrong[:4], *wrong.expected) for wrong in found])
    await writes.make(connection)
    return {UUID(wrong.tenant_id) for wrong in found if wrong.scope != "keypair"}


async def _repair_copies(connection: AsyncConnection) -> list[tuple[UUID, int, UUID]]:
    """The tasks whose copies were wrong, with their versions and workloads."""
    wrong = {
        "requested_slots": await differences.of_requested(connection),
        "occupied_slots": await differences.of_occupied(connection) if keeps_copies(connection) else [],
        "devices": await differences.of_device_copies(connection),
    }
    ids = {found.task_id for part in wrong.values() for found in part}
    if not ids:
        return []
    true = await _copies(connection, ids)
    writes = Writes.on(connection)
    for column, part in wrong.items():
        if part:
            writes.add(_COPIES[column], [(found.task_id, true[column].get(found.task_id)) for found in part])
    await writes.make(connection)
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.version, tasks.c.workload_id).where(among(tasks.c.id, ids)).order_by(tasks.c.id)
    )
    return [(row.id, row.version, row.workload_id) for row in rows]


async def _copies(connection: AsyncConnection, ids: set[UUID]) -> dict[str, dict[UUID, Any]]:
    """What the copies of these tasks are to be."""
    row, given = resource_allocations.c, device_allocations.c
    occupied = row.held + row.reserved + row.used
    live = row.freed_at.is_(None) & tasks.c.freed_at.is_(None) & tasks.c.node_id.is_not(None)
    requested: dict[UUID, dict[str, int]] = {id: {} for id in ids}
    occupies: dict[UUID, dict[str, int]] = {id: {} for id in ids}
    for task_id, slot, asked, amount, counts in await connection.execute(
        select(row.task_id, row.slot_name, row.requested, occupied, live & (tasks.c.status != TaskStatus.PENDING))
        .join(tasks, tasks.c.id == row.task_id)
        .where(among(row.task_id, ids))
    ):
        requested[task_id][slot] = asked
        if counts:
            occupies[task_id][slot] = amount
    devices: dict[UUID, dict[str, list[list[int]]]] = {}
    for task_id, slot, index, amount in await connection.execute(
        select(given.task_id, given.slot_name, given.device_index, given.amount)
        .where(among(given.task_id, ids), given.freed_at.is_(None))
        .order_by(given.task_id, given.slot_name, given.device_index)
    ):
        devices.setdefault(task_id, {}).setdefault(slot, []).append([index, amount])
    return {"requested_slots": requested, "occupied_slots": occupies, "devices": devices}
