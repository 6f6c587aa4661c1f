"""Questions to the ledger, and the proof that ledger, counters and JSON copies agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import case, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus, as_derived, derive, is_end, is_workload_end
from mooring.model.workloads import Kind
from mooring.store import events
from mooring.store.tables import node_resources, nodes, resource_allocations, tasks, workloads

_ledger = resource_allocations.c


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must hold and does not."""

    rule: str
    subject: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Audit:
    checked: dict[str, int]
    findings: list[Finding]


async def audit(connection: AsyncConnection) -> Audit:
    """Compare everything that is kept twice, in one snapshot."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    findings: list[Finding] = []
    sums = await occupancy(connection)
    counters = await _check_counters(connection, sums, findings)
    checked_tasks = await _check_tasks(connection, findings)
    checked_workloads = await _check_workloads(connection, findings)
    return Audit({"counters": counters, "tasks": checked_tasks, "workloads": checked_workloads}, findings)


async def occupancy(connection: AsyncConnection) -> dict[tuple[UUID, str], tuple[int, int, int]]:
    """Who occupies what: the live ledger rows summed by node and slot as (held, reserved, used)."""
    rows = await connection.execute(
        select(
            tasks.c.node_id,
            _ledger.slot_name,
            func.sum(_ledger.held).label("held"),
            func.sum(_ledger.reserved).label("reserved"),
            func.sum(_ledger.used).label("used"),
        )
        .join(tasks, tasks.c.id == _ledger.task_id)
        .where(_ledger.freed_at.is_(None), tasks.c.node_id.is_not(None))
        .group_by(tasks.c.node_id, _ledger.slot_name)
    )
    return {(row.node_id, row.slot_name): (int(row.held), int(row.reserved), int(row.used)) for row in rows}


async def repair_counters(connection: AsyncConnection, now: datetime) -> int:
    """Write the node counters anew from the ledger; how many were wrong."""
    sums = await occupancy(connection)
    rows = await connection.execute(
        select(node_resources).order_by(node_resources.c.node_id, node_resources.c.slot_name).with_for_update()
    )
    wrong = [
        (row.node_id, row.slot_name)
        for row in rows
        if (row.held, row.reserved, row.used) != sums.get((row.node_id, row.slot_name), (0, 0, 0))
    ]
    for node_id, slot in wrong:
        held, reserved, used = sums.get((node_id, slot), (0, 0, 0))
        await connection.execute(
            update(node_resources)
            .where(node_resources.c.node_id == node_id, node_resources.c.slot_name == slot)
            .values(held=held, reserved=reserved, used=used)
        )
    touched = sorted({node_id for node_id, _ in wrong})
    await events.append(connection, [events.NewEvent("node", n, 0, "repaired", n) for n in touched], now)
    return len(wrong)


async def _check_counters(
    connection: AsyncConnection, sums: dict[tuple[UUID, str], tuple[int, int, int]], findings: list[Finding]
) -> int:
    rows = (
        await connection.execute(
            select(node_resources, nodes.c.name).join(nodes, nodes.c.id == node_resources.c.node_id)
        )
    ).all()
    seen = set()
    for row in rows:
        key = (row.node_id, row.slot_name)
        seen.add(key)
        expected = sums.get(key, (0, 0, 0))
        found = (row.held, row.reserved, row.used)
        subject = f"node {row.name}, {row.slot_name}"
        if found != expected:
            findings.append(Finding("ledger = counters", subject, _shown(expected), _shown(found)))
        if sum(found) > row.allocatable:
            findings.append(Finding("within capacity", subject, f"at most {row.allocatable}", str(sum(found))))
    findings.extend(
        Finding("ledger = counters", f"node {node_id}, {slot}", "a counter row", "none")
        for (node_id, slot), amounts in sums.items()
        if (node_id, slot) not in seen and any(amounts)
    )
    return len(rows)


async def _check_tasks(connection: AsyncConnection, findings: list[Finding]) -> int:
    """JSON = ledger, and a task occupies exactly while its status says so."""
    ledger: dict[UUID, dict[str, tuple[int, int, bool]]] = defaultdict(dict)
    live = case((_ledger.freed_at.is_(None), 1), else_=0)
    occupied = _ledger.held + _ledger.reserved + _ledger.used
    for row in await connection.execute(select(_ledger.task_id, _ledger.slot_name, _ledger.requested, occupied, live)):
        ledger[row[0]][row[1]] = (row[2], row[3], bool(row[4]))
    rows = (await connection.execute(select(tasks))).all()
    for task in rows:
        subject = f"task {task.id} ({task.status})"
        own = ledger[task.id]
        requested = {slot: amounts[0] for slot, amounts in own.items()}
        if requested != task.requested_slots:
            findings.append(Finding("JSON = ledger, requested", subject, str(requested), str(task.requested_slots)))
        occupies = task.freed_at is None and task.node_id is not None and task.status != TaskStatus.PENDING
        expected = {slot: amounts[1] for slot, amounts in own.items() if amounts[2]} if occupies else {}
        if expected != task.occupied_slots:
            findings.append(Finding("JSON = ledger, occupied", subject, str(expected), str(task.occupied_slots)))
        status = TaskStatus(task.status)
        if status in OCCUPYING and (task.node_id is None or task.freed_at is not None):
            findings.append(Finding("occupying tasks have a node", subject, "a node, not freed", f"{task.node_name}"))
        if is_end(status) and status is not TaskStatus.LOST and task.freed_at is None:
            findings.append(Finding("ended tasks are freed", subject, "freed", "still charged"))
        if status in OCCUPYING and any(amounts[1] != amounts[0] for amounts in own.values()):
            findings.append(Finding("occupies what it requested", subject, str(requested), str(expected)))
    return len(rows)


async def _check_workloads(connection: AsyncConnection, findings: list[Finding]) -> int:
    """A living workload has as many current tasks as it wants, each once, and the status that they make."""
    statuses: dict[UUID, list[TaskStatus]] = defaultdict(list)
    indexes: dict[UUID, list[int]] = defaultdict(list)
    current = (
        select(tasks.c.workload_id, tasks.c.status, tasks.c.task_index, tasks.c.requeue, workloads.c.stopping)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(tasks.c.current)
    )
    for row in await connection.execute(current):
        counted = as_derived(TaskStatus(row.status), requeue=row.requeue, stopping=row.stopping)
        statuses[row.workload_id].append(counted)
        indexes[row.workload_id].append(row.task_index)
    rows = (await connection.execute(select(workloads))).all()
    for workload in rows:
        subject = f"workload {workload.id} ({workload.status})"
        own = statuses[workload.id]
        if len(own) != workload.replicas:
            findings.append(Finding("as many tasks as wanted", subject, str(workload.replicas), str(len(own))))
        if len(set(indexes[workload.id])) != len(own):
            findings.append(Finding("one current attempt per task", subject, "each index once", "doubled"))
        status = WorkloadStatus(workload.status)
        derived = _derived(workload, status, own)
        if status is not derived:
            findings.append(Finding("status follows from tasks", subject, derived, status))
    return len(rows)


def _derived(workload: Any, status: WorkloadStatus, own: list[TaskStatus]) -> WorkloadStatus:
    if is_workload_end(status):
        alive = any(not is_end(task) for task in own)
        return WorkloadStatus.TERMINATING if alive else status
    return derive(
        status,
        own,
        desired=workload.replicas,
        service=workload.kind == Kind.DEPLOYMENT,
        stopping=workload.stopping,
    )


def _shown(amounts: tuple[int, int, int]) -> str:
    return "held {} reserved {} used {}".format(*amounts)
