"""Capacities of nodes, and counters: the sums of nodes, devices and tenants over the ledger.

Counters follow from the records of tasks, so they are corrected after them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.resources.devices import WHOLE
from mooring.store.audit import ledger_diff
from mooring.store.audit.corrections import Cell, Correction, Unresolved, Verdict, changed, inserted
from mooring.store.audit.evidence import amounts
from mooring.store.audit.majority import (
    Decided,
    Undecided,
    Vote,
    majority,
)
from mooring.store.core.batch_sql import among
from mooring.store.core.types import AnyRow, as_uuid
from mooring.store.tables import node_devices, node_resources, nodes, tenant_resources

_CAPACITY = "counters = capacity of the node"
_SUMS = "the sum over the ledger"
_ALLOCATABLE = "capacity - system_reserved"
_COUNTERS = ("held", "reserved", "used", "leaving")


async def capacities(connection: AsyncConnection) -> Verdict:
    """Return corrections of `node_resources` rows that are missing or have the wrong capacity."""
    ids = await _inconsistent_nodes(connection)
    if not ids:
        return Verdict()
    rows = (
        await connection.execute(select(nodes.c.id, nodes.c.name, nodes.c.capacity).where(among(nodes.c.id, ids)))
    ).all()
    slots: dict[UUID, dict[str, AnyRow]] = {row.id: {} for row in rows}
    for row in await connection.execute(select(node_resources).where(among(node_resources.c.node_id, ids))):
        slots[row.node_id][row.slot_name] = row
    devices: dict[tuple[UUID, str], list[AnyRow]] = {}
    for row in await connection.execute(
        select(node_devices).where(among(node_devices.c.node_id, ids)).order_by(node_devices.c.device_index)
    ):
        devices.setdefault((row.node_id, row.slot_name), []).append(row)
    corrections: list[Correction] = []
    unresolved: list[Unresolved] = []
    for node in rows:
        known = amounts(node.capacity) or {}
        decided = dict(known)
        for slot in sorted({*known, *slots[node.id]}):
            subject = f"node {node.name}, {slot}"
            there, own = slots[node.id].get(slot), devices.get((node.id, slot), [])
            try:
                capacity = _capacity(known.get(slot), there, own)
                decided[slot] = capacity.value
                corrections += _slot(node.id, slot, subject, capacity, there)
            except Undecided as undecided:
                unresolved.append(Unresolved(_CAPACITY, subject, str(undecided)))
        cell = Cell("capacity", node.capacity, decided, "node_resources.capacity")
        corrections += changed(nodes, {"id": node.id}, [cell], _CAPACITY, f"node {node.name}")
    return Verdict(tuple(corrections), tuple(unresolved))


def _slot(node_id: UUID, slot: str, subject: str, capacity: Decided[int], row: AnyRow | None) -> list[Correction]:
    found: list[Correction] = []
    if row is None:
        values = {"capacity": capacity.value, "system_reserved": 0, "allocatable": capacity.value}
        key = {"node_id": node_id, "slot_name": slot}
        found.append(inserted(node_resources, key, values, capacity.why, _CAPACITY, subject))
    else:
        cells = [
            Cell("capacity", row.capacity, *capacity),
            Cell("allocatable", row.allocatable, max(0, capacity.value - row.system_reserved), _ALLOCATABLE),
        ]
        key = {"node_id": node_id, "slot_name": slot}
        found += changed(node_resources, key, cells, _CAPACITY, subject)
    return found


def _capacity(known: int | None, row: AnyRow | None, devices: list[AnyRow]) -> Decided[int]:
    votes = [] if known is None else [Vote("nodes.capacity", known)]
    if row is not None:
        votes.append(Vote("node_resources.capacity", row.capacity))
        if row.allocatable:
            votes.append(Vote("node_resources.allocatable", row.allocatable + row.system_reserved))
    if devices:
        votes.append(Vote("node_devices", sum(device.capacity for device in devices)))
    return majority("capacity", votes)


async def _inconsistent_nodes(connection: AsyncConnection) -> list[UUID]:
    if connection.dialect.name == "postgresql":
        members = "jsonb_each_text(CASE jsonb_typeof(n.capacity) WHEN 'object' THEN n.capacity ELSE '{}' END)"
    else:
        members = "json_each(n.capacity)"
    written = "SELECT r.node_id AS id, r.slot_name AS name, CAST(r.capacity AS text) AS amount FROM node_resources r"
    known = f"SELECT n.id, s.key, CAST(s.value AS text) FROM nodes n, {members} s"
    rules = (
        # A node has no readable copy of its capacity before its agent connects.
        f"SELECT a.id FROM ({written} JOIN nodes n ON n.id = r.node_id WHERE n.capacity IS NOT NULL"
        f" EXCEPT {known}) AS a UNION SELECT b.id FROM (SELECT * FROM ({known}) AS c EXCEPT {written}) AS b",
        "SELECT DISTINCT node_id FROM node_resources"
        " WHERE allocatable <> CASE WHEN capacity > system_reserved THEN capacity - system_reserved ELSE 0 END",
    )
    found: set[UUID] = set()
    for rule in rules:
        found.update(as_uuid(id) for (id,) in await connection.execute(text(rule)))
    return sorted(found)


async def of_nodes(connection: AsyncConnection, uncertain: Collection[UUID]) -> list[Correction]:
    """Return corrections of node and device counters. `uncertain`: nodes of unresolved tasks, which are skipped."""
    found: list[Correction] = []
    for wrong in await ledger_diff.of_nodes(connection):
        if wrong.node_id in uncertain:
            continue
        rule, subject = "ledger = counters", f"node {wrong.node or wrong.node_id}, {wrong.slot}"
        key = {"node_id": wrong.node_id, "slot_name": wrong.slot}
        if wrong.node is None:
            # Nothing says what the node has. It is full until its agent connects again and names its capacity.
            there = sum(wrong.expected[:3])
            values = {"capacity": there, "allocatable": there, **dict(zip(_COUNTERS, wrong.expected, strict=True))}
            found.append(inserted(node_resources, key, values, f"{_SUMS}; capacity unknown", rule, subject))
        else:
            found += changed(node_resources, key, _sums(_COUNTERS, wrong.found, wrong.expected), rule, subject)
    for device in await ledger_diff.of_devices(connection):
        if device.node_id in uncertain:
            continue
        rule, subject = "allocations = devices", f"node {device.node or device.node_id}, {device.slot} {device.device}"
        key = {"node_id": device.node_id, "slot_name": device.slot, "device_index": device.device}
        if device.node is None:
            values = {**await _like_others(connection, device), "capacity": WHOLE, "taken": device.expected}
            found.append(inserted(node_devices, key, values, "device_allocations name it", rule, subject))
        else:
            cells = [Cell("taken", device.found, device.expected, "the sum over device_allocations")]
            found += changed(node_devices, key, cells, rule, subject)
    return found


async def _like_others(connection: AsyncConnection, lost: ledger_diff.DeviceDiff) -> dict[str, Any]:
    """Return model and memory of the other devices of the node if they are alike; otherwise the agent reports them."""
    others = await connection.execute(
        select(node_devices.c.model, node_devices.c.memory)
        .where(node_devices.c.node_id == lost.node_id, node_devices.c.slot_name == lost.slot)
        .distinct()
    )
    models = others.all()
    model, memory = models[0] if len(models) == 1 else (None, None)
    return {"model": model, "memory": memory}


async def of_tenants(connection: AsyncConnection, uncertain: Collection[str]) -> list[Correction]:
    """Return corrections of tenant counters, in the order of their keys, which is the lock order."""
    found: list[Correction] = []
    for wrong in await ledger_diff.of_tenants(connection):
        if wrong.tenant_id in uncertain:
            continue
        key = {"scope": wrong.scope, "tenant_id": wrong.tenant_id, "pool": wrong.pool, "slot_name": wrong.slot}
        subject = f"{wrong.scope} {wrong.tenant_id}, {wrong.slot}" + (f" in pool {wrong.pool}" if wrong.pool else "")
        if wrong.exists:
            cells = _sums(("reserved", "used"), wrong.found, wrong.expected)
            found += changed(tenant_resources, key, cells, "ledger = tenants", subject)
        else:
            values = dict(zip(("reserved", "used"), wrong.expected, strict=True))
            found.append(inserted(tenant_resources, key, values, _SUMS, "ledger = tenants", subject))
    return found


def _sums(columns: tuple[str, ...], before: tuple[Any, ...], after: tuple[Any, ...]) -> list[Cell]:
    return [Cell(column, old, new, _SUMS) for column, old, new in zip(columns, before, after, strict=True)]
