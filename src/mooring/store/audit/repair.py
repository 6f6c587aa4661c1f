"""The repair of records that contradict each other: by status and majority first, then counters by their sums.

Tasks come first, then workloads, then capacities and counters. Records that the sources do not decide are left
unchanged, and so are the counters that depend on them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.audit import (
    corrections,
    counters,
    evidence,
    inconsistencies,
    ledger_rules,
)
from mooring.store.audit import tasks as task_audit
from mooring.store.audit import workloads as workload_audit
from mooring.store.audit.corrections import Correction, Unresolved, as_json
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.control import events
from mooring.store.core.batch_sql import Writes, among
from mooring.store.core.chunks import chunks
from mooring.store.core.engine import allow_long_statements, writes_ledger_copies
from mooring.store.tables import (
    device_allocations,
    holds,
    node_devices,
    node_resources,
    nodes,
    port_allocations,
    resource_allocations,
    tasks,
    tenant_resources,
    workloads,
)
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

_ABOUT_TASKS = frozenset({resource_allocations, device_allocations})


@dataclass(slots=True)
class Repair:
    """All corrections, in the order in which they were written, and all unresolved contradictions."""

    corrections: list[Correction] = field(default_factory=list)
    unresolved: list[Unresolved] = field(default_factory=list)


async def repair(connection: AsyncConnection, now: datetime, actor: Actor = admin_actions.SERVER) -> Repair:
    """Correct what the sources decide, and record each correction. In a consistent database, write nothing.

    Servers may keep running: the repair locks workloads and then nodes, as every change of a task does.
    """
    await allow_long_statements(connection)
    locked = await _lock(connection)
    done = Repair()
    uncertain = await _repair_tasks(connection, done, locked)
    await _repair_workloads(connection, done, locked)
    capacity = await counters.capacities(connection)
    done.unresolved += capacity.unresolved
    await _write(connection, done, capacity.corrections)
    await _write(connection, done, await counters.of_nodes(connection, uncertain.nodes))
    await _write(connection, done, await counters.of_tenants(connection, uncertain.tenants))
    if done.corrections:
        await _record(connection, done.corrections, actor, now)
    return done


async def _lock(connection: AsyncConnection) -> set[UUID]:
    """Lock the inconsistent workloads and all nodes, and with them their tasks and all counters; return the workloads.

    A workload that becomes inconsistent while this waits for locks is left for the next repair.
    """
    ids = await inconsistencies.in_tasks(connection)
    owners = {
        *await inconsistencies.in_workloads(connection),
        *(await ledger_rules.with_wrong_status(connection)),
    }
    for part in chunks(ids):
        owners.update((await _owners(connection, part)).values())
    await lock_workloads(connection, sorted(owners))
    await connection.execute(select(nodes.c.id).order_by(nodes.c.id).with_for_update(key_share=True))
    return owners


async def _owners(connection: AsyncConnection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return the workload of each task."""
    rows = await connection.execute(select(tasks.c.id, tasks.c.workload_id).where(among(tasks.c.id, ids)))
    return {row.id: row.workload_id for row in rows}


@dataclass(slots=True)
class _Uncertain:
    nodes: set[UUID] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)


async def _repair_tasks(connection: AsyncConnection, done: Repair, locked: Collection[UUID]) -> _Uncertain:
    uncertain = _Uncertain()
    for part in chunks(await inconsistencies.in_tasks(connection)):
        owners = await _owners(connection, part)
        batch = await evidence.load(connection, [id for id, owner in owners.items() if owner in locked])
        verdicts = {
            id: task_audit.reconcile(own, batch, copies=writes_ledger_copies(connection))
            for id, own in batch.tasks.items()
        }
        done.unresolved += [
            Unresolved("rows have a task", f"task {id}", "no such task") for id in part if id not in owners
        ]
        for id, verdict in verdicts.items():
            done.unresolved += verdict.unresolved
            if verdict.unresolved:
                _add_unresolved(uncertain, batch.tasks[id], batch)
        await _write(connection, done, [each for verdict in verdicts.values() for each in verdict.corrections])
    return uncertain


def _add_unresolved(uncertain: _Uncertain, own: evidence.TaskEvidence, batch: evidence.EvidenceBatch) -> None:
    """Add the counters that depend on a task whose records are unresolved."""
    named = {own.task.node_id, batch.node_named(own.task.node_name), own.event_node}
    named |= {row.node_id for row in (*own.devices.values(), *own.ports)}
    uncertain.nodes |= {id for id in named if id is not None}
    owner = own.workload
    uncertain.tenants |= {owner.access_key, str(owner.user_id), str(owner.project_id), str(owner.domain_id)}


async def _repair_workloads(connection: AsyncConnection, done: Repair, locked: Collection[UUID]) -> None:
    ids = {
        *await inconsistencies.in_workloads(connection),
        *(await ledger_rules.with_wrong_status(connection)),
    }
    for part in chunks(sorted(ids.intersection(locked))):
        for own in (await workload_audit.load(connection, part)).values():
            verdict = workload_audit.reconcile(own)
            done.unresolved += verdict.unresolved
            await _write(connection, done, verdict.corrections)


async def _write(connection: AsyncConnection, done: Repair, found: Sequence[Correction]) -> None:
    await corrections.write(connection, found)
    done.corrections += found


async def _record(connection: AsyncConnection, found: Sequence[Correction], actor: Actor, now: datetime) -> None:
    """Record one administrative action per corrected row, and add the status history and events of the repair."""
    for each in found:
        before = {cell.column: as_json(cell.before) for cell in each.cells}
        after = {cell.column: as_json(cell.after) for cell in each.cells}
        why = {"why": "; ".join(dict.fromkeys(cell.why for cell in each.cells))}
        subject = f"{each.table.name} {each.row}"
        await admin_actions.record(
            connection, actor, "repair", "audit", subject, now=now, before=before, after=after | why
        )
    log = ChangeLog(f"{evidence.REPAIR}{actor.username}"[:100], now)
    await _log_tasks(connection, found, log)
    await _log_workloads(connection, found, log)
    touched = {each.key["node_id"] for each in found if each.table in (node_resources, node_devices)}
    for id in sorted(touched):
        log.add_event(events.NewEvent("node", id, 0, "repaired", id))
    tenants = {
        each.key["tenant_id"] for each in found if each.table is tenant_resources and each.key["scope"] != "keypair"
    }
    for tenant in sorted(tenants):
        log.add_event(events.NewEvent("tenant", UUID(tenant), 0, events.USAGE))
    writes = Writes.on(connection)
    log.write(writes)
    await writes.execute(connection)


async def _log_tasks(connection: AsyncConnection, found: Iterable[Correction], log: ChangeLog) -> None:
    corrected: dict[UUID, list[Correction]] = {}
    for each in found:
        if (id := _task_of(each)) is not None:
            corrected.setdefault(id, []).append(each)
    for part in chunks(sorted(corrected)):
        rows = await connection.execute(
            update(tasks)
            .where(among(tasks.c.id, part))
            .values(version=tasks.c.version + 1)
            .returning(tasks.c.id, tasks.c.version, tasks.c.workload_id, tasks.c.node_id)
        )
        for row in sorted(rows, key=lambda row: row.id):
            log.add_event(events.NewEvent("task", row.id, row.version, "repaired", row.node_id, row.workload_id))
            _log_statuses(log, "task", row.id, row.workload_id, corrected[row.id], tasks)


async def _log_workloads(connection: AsyncConnection, found: Iterable[Correction], log: ChangeLog) -> None:
    corrected = {each.key["id"]: each for each in found if each.table is workloads}
    for part in chunks(sorted(corrected)):
        rows = await connection.execute(
            update(workloads)
            .where(among(workloads.c.id, part))
            .values(version=workloads.c.version + 1)
            .returning(workloads.c.id, workloads.c.version)
        )
        for id, version in sorted(rows):
            log.add_event(events.NewEvent("workload", id, version, "repaired", None, id))
            _log_statuses(log, "workload", id, id, [corrected[id]], workloads)


def _log_statuses(
    log: ChangeLog, noun: str, id: UUID, workload_id: UUID, found: Iterable[Correction], table: Any
) -> None:
    """Add a history row for each corrected status, which says that it had been changed."""
    for each in found:
        for cell in each.cells:
            if each.table is table and cell.column == "status":
                log.add_status(noun, id, workload_id, cell.before, cell.after, "Repaired: " + cell.why)


def _task_of(correction: Correction) -> UUID | None:
    """Return the task that a corrected row belongs to."""
    found: UUID | None = None
    if correction.table is tasks:
        found = correction.key["id"]
    elif correction.table in _ABOUT_TASKS:
        found = correction.key["task_id"]
    elif correction.table in (holds, port_allocations):
        named = [cell.after or cell.before for cell in correction.cells if cell.column == "task_id"]
        found = named[0] if named else None
    return found
