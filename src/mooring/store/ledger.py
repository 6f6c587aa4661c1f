"""Questions to the ledger, and the proof that ledger, counters and JSON copies agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import case, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus, as_derived, derive, is_end, is_workload_end
from mooring.model.workloads import Kind
from mooring.store import events
from mooring.store.tables import (
    device_allocations,
    holds,
    node_devices,
    node_resources,
    nodes,
    resource_allocations,
    tasks,
    workloads,
)
from mooring.store.types import AnyRow

_ledger = resource_allocations.c
_given = device_allocations.c


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
    checked = {
        "counters": counters,
        "tasks": checked_tasks,
        "workloads": checked_workloads,
        "devices": await _check_devices(connection, findings),
        "holds": await _check_holds(connection, findings),
    }
    return Audit(checked, findings)


class Occupancy(NamedTuple):
    """What is occupied of a slot of a node, and how much of that victims will leave."""

    held: int = 0
    reserved: int = 0
    used: int = 0
    leaving: int = 0

    def __str__(self) -> str:
        return f"held {self.held} reserved {self.reserved} used {self.used} leaving {self.leaving}"


async def occupancy(connection: AsyncConnection) -> dict[tuple[UUID, str], Occupancy]:
    """Who occupies what: the live ledger rows summed by node and slot."""
    occupied = _ledger.held + _ledger.reserved + _ledger.used
    rows = await connection.execute(
        select(
            tasks.c.node_id,
            _ledger.slot_name,
            func.sum(_ledger.held).label("held"),
            func.sum(_ledger.reserved).label("reserved"),
            func.sum(_ledger.used).label("used"),
            func.sum(case((tasks.c.preempted_by.is_not(None), occupied), else_=0)).label("leaving"),
        )
        .join(tasks, tasks.c.id == _ledger.task_id)
        .where(_ledger.freed_at.is_(None), tasks.c.node_id.is_not(None))
        .group_by(tasks.c.node_id, _ledger.slot_name)
    )
    return {(node_id, slot): Occupancy(*map(int, amounts)) for node_id, slot, *amounts in rows}


async def repair_counters(connection: AsyncConnection, now: datetime) -> int:
    """Write the counters of nodes and devices anew from the ledger; how many were wrong."""
    await connection.execute(select(nodes.c.id).order_by(nodes.c.id).with_for_update(key_share=True))
    sums = await occupancy(connection)
    touched: list[UUID] = []
    for row in (await connection.execute(select(node_resources))).all():
        expected = sums.get((row.node_id, row.slot_name), Occupancy())
        if _counted(row) != expected:
            touched.append(row.node_id)
            await connection.execute(
                update(node_resources)
                .where(node_resources.c.node_id == row.node_id, node_resources.c.slot_name == row.slot_name)
                .values(expected._asdict())
            )
    taken = await _devices_taken(connection)
    for row in (await connection.execute(select(node_devices))).all():
        amount = sum(taken.get((row.node_id, row.slot_name, row.device_index), (0, 0)))
        if row.taken != amount:
            touched.append(row.node_id)
            await connection.execute(
                update(node_devices)
                .where(
                    node_devices.c.node_id == row.node_id,
                    node_devices.c.slot_name == row.slot_name,
                    node_devices.c.device_index == row.device_index,
                )
                .values(taken=amount)
            )
    repaired = [events.NewEvent("node", node_id, 0, "repaired", node_id) for node_id in sorted(set(touched))]
    await events.append(connection, repaired, now)
    return len(touched)


async def _check_counters(
    connection: AsyncConnection, sums: dict[tuple[UUID, str], Occupancy], findings: list[Finding]
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
        expected = sums.get(key, Occupancy())
        found = _counted(row)
        subject = f"node {row.name}, {row.slot_name}"
        if found != expected:
            findings.append(Finding("ledger = counters", subject, str(expected), str(found)))
        staying = found.held + found.reserved + found.used - found.leaving
        if staying > row.allocatable:
            findings.append(Finding("within capacity", subject, f"at most {row.allocatable}", str(staying)))
    findings.extend(
        Finding("ledger = counters", f"node {node_id}, {slot}", "a counter row", "none")
        for (node_id, slot), amounts in sums.items()
        if (node_id, slot) not in seen and any(amounts)
    )
    return len(rows)


def _counted(row: AnyRow) -> Occupancy:
    return Occupancy(row.held, row.reserved, row.used, row.leaving)


async def _devices_taken(connection: AsyncConnection) -> dict[tuple[UUID, str, int], tuple[int, int]]:
    """What tasks have of each device: of those that stay, and of victims."""
    taken: dict[tuple[UUID, str, int], tuple[int, int]] = {}
    rows = await connection.execute(
        select(_given.node_id, _given.slot_name, _given.device_index, _given.amount, tasks.c.preempted_by)
        .join(tasks, tasks.c.id == _given.task_id)
        .where(_given.freed_at.is_(None))
    )
    for row in rows:
        key = (row.node_id, row.slot_name, row.device_index)
        staying, leaving = taken.get(key, (0, 0))
        stays = row.preempted_by is None
        taken[key] = (staying + row.amount, leaving) if stays else (staying, leaving + row.amount)
    return taken


async def _check_devices(connection: AsyncConnection, findings: list[Finding]) -> int:
    """Each device is taken as far as its allocations say, and by those that stay never above its capacity."""
    taken = await _devices_taken(connection)
    rows = (
        await connection.execute(select(node_devices, nodes.c.name).join(nodes, nodes.c.id == node_devices.c.node_id))
    ).all()
    for row in rows:
        staying, leaving = taken.pop((row.node_id, row.slot_name, row.device_index), (0, 0))
        subject = f"node {row.name}, {row.slot_name} {row.device_index}"
        if row.taken != staying + leaving:
            findings.append(Finding("allocations = devices", subject, str(staying + leaving), str(row.taken)))
        # One that vanished has no capacity any more, and keeps what it has until that ends.
        if row.capacity and staying > row.capacity:
            findings.append(Finding("device within capacity", subject, f"at most {row.capacity}", str(staying)))
    findings.extend(
        Finding("allocations = devices", f"node {node_id}, {slot} {index}", "a device", "none")
        for node_id, slot, index in taken
    )
    copies: dict[UUID, dict[str, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
    live = (
        select(device_allocations)
        .where(_given.freed_at.is_(None))
        .order_by(_given.task_id, _given.slot_name, _given.device_index)
    )
    for row in await connection.execute(live):
        copies[row.task_id][row.slot_name].append([row.device_index, row.amount])
    for task in await connection.execute(select(tasks.c.id, tasks.c.devices).where(tasks.c.devices.is_not(None))):
        copy = {slot: sorted(own) for slot, own in task.devices.items()}
        expected = dict(copies.pop(task.id, {}))
        if copy != expected:
            findings.append(Finding("JSON = devices", f"task {task.id}", str(expected), str(copy)))
    findings.extend(
        Finding("JSON = devices", f"task {task_id}", str(dict(own)), "none") for task_id, own in copies.items()
    )
    return len(rows)


async def _check_holds(connection: AsyncConnection, findings: list[Finding]) -> int:
    """A place is kept for exactly the tasks that are RESERVED, where they are."""
    rows = (
        await connection.execute(
            select(tasks.c.id, tasks.c.status, tasks.c.node_id, holds.c.id.label("hold"), holds.c.node_id.label("kept"))
            .outerjoin(holds, holds.c.task_id == tasks.c.id)
            .where(or_(tasks.c.status == TaskStatus.RESERVED, holds.c.id.is_not(None)))
        )
    ).all()
    for row in rows:
        subject = f"task {row.id} ({row.status})"
        if row.hold is None:
            findings.append(Finding("reserved = held", subject, "a hold", "none"))
        elif row.status != TaskStatus.RESERVED:
            findings.append(Finding("reserved = held", subject, "no hold", f"hold {row.hold}"))
        elif row.kept != row.node_id:
            findings.append(Finding("reserved = held", subject, f"a hold on node {row.node_id}", f"on {row.kept}"))
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
        array=workload.array is not None,
    )
