"""The proof that ledger, counters, readable copies and statuses agree: what must hold, and where it does not.

Every rule is a question whose answer is what breaks it; nothing is read of what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from sqlalchemy import Table, func, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import (
    OCCUPYING,
    TaskStatus,
    WorkloadStatus,
    as_derived,
    derive,
    is_end,
    is_workload_end,
)
from mooring.model.workloads import Kind
from mooring.store import differences
from mooring.store.engine import keeps_copies, without_haste
from mooring.store.tables import (
    device_allocations,
    holds,
    node_devices,
    node_resources,
    nodes,
    resource_allocations,
    tasks,
    tenant_resources,
    timeslots,
    volumes,
    workload_volumes,
    workloads,
)
from mooring.store.types import as_uuid

_ledger = resource_allocations.c
_given = device_allocations.c
_COUNTED: dict[str, Table] = {
    "counters": node_resources,
    "tenants": tenant_resources,
    "tasks": tasks,
    "workloads": workloads,
    "devices": node_devices,
    "holds": holds,
    "timeslots": timeslots,
    "volumes": volumes,
}


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
    """Compare everything that is kept twice; the connection has to be one of a snapshot."""
    await without_haste(connection)
    findings = [
        *await wrong_sums(connection),
        *await wrong_copies(connection),
        *await _over_capacity(connection),
        *await _overbooked(connection),
        *await _check_holds(connection),
        *await _check_tasks(connection),
        *await _check_volumes(connection),
        *await _check_workloads(connection),
    ]
    checked = {
        what: int((await connection.execute(select(func.count()).select_from(table))).scalar_one())
        for what, table in _COUNTED.items()
    }
    return Audit(checked, findings)


async def wrong_sums(connection: AsyncConnection) -> list[Finding]:
    """Counters that the ledger does not add up to: those of nodes, tenants and devices."""
    return [
        *map(_of_node, await differences.of_nodes(connection)),
        *map(_of_tenant, await differences.of_tenants(connection)),
        *map(_of_device, await differences.of_devices(connection)),
    ]


async def wrong_copies(connection: AsyncConnection) -> list[Finding]:
    """Readable copies that say something else than the ledger."""
    found = [("JSON = ledger, requested", await differences.of_requested(connection))]
    if keeps_copies(connection):
        found.append(("JSON = ledger, occupied", await differences.of_occupied(connection)))
    found.append(("JSON = devices", await differences.of_device_copies(connection)))
    return [
        Finding(rule, f"task {wrong.task_id} ({wrong.status})", str(wrong.expected), str(wrong.found))
        for rule, copies in found
        for wrong in copies
    ]


def _of_node(wrong: differences.NodeDifference) -> Finding:
    if wrong.node is None:
        return Finding("ledger = counters", f"node {wrong.node_id}, {wrong.slot}", "a counter row", "none")
    expected, found = _Counted(*wrong.expected), _Counted(*wrong.found)
    return Finding("ledger = counters", f"node {wrong.node}, {wrong.slot}", str(expected), str(found))


def _of_tenant(wrong: differences.TenantDifference) -> Finding:
    where = f" in pool {wrong.pool}" if wrong.pool else ""
    written = ("reserved {} used {}".format(*amounts) for amounts in (wrong.expected, wrong.found))
    return Finding("ledger = tenants", f"{wrong.scope} {wrong.tenant_id}, {wrong.slot}{where}", *written)


def _of_device(wrong: differences.DeviceDifference) -> Finding:
    rule, device = "allocations = devices", f"{wrong.slot} {wrong.device}"
    if wrong.node is None:
        return Finding(rule, f"node {wrong.node_id}, {device}", "a device", "none")
    return Finding(rule, f"node {wrong.node}, {device}", str(wrong.expected), str(wrong.found))


class _Counted(NamedTuple):
    held: int
    reserved: int
    used: int
    leaving: int

    def __str__(self) -> str:
        return f"held {self.held} reserved {self.reserved} used {self.used} leaving {self.leaving}"


async def _overbooked(connection: AsyncConnection) -> list[Finding]:
    return [
        Finding("timeslots within capacity", f"node {node}, {slot}", f"at most {allocatable}", str(promised))
        for node, slot, allocatable, promised in await differences.of_timeslots(connection)
    ]


async def _over_capacity(connection: AsyncConnection) -> list[Finding]:
    """By those that stay; what victims still have is above it until they are gone."""
    counter, device = node_resources.c, node_devices.c
    staying = counter.held + counter.reserved + counter.used - counter.leaving
    rows = await connection.execute(
        select(nodes.c.name, counter.slot_name, counter.allocatable, staying)
        .join(nodes, nodes.c.id == counter.node_id)
        .where(staying > counter.allocatable)
        .order_by(nodes.c.name, counter.slot_name)
    )
    found = [
        Finding("within capacity", f"node {name}, {slot}", f"at most {most}", str(there))
        for name, slot, most, there in rows
    ]
    given = func.sum(_given.amount)
    shared = await connection.execute(
        select(nodes.c.name, device.slot_name, device.device_index, device.capacity, given)
        .join(nodes, nodes.c.id == device.node_id)
        .join(
            device_allocations,
            (_given.node_id == device.node_id)
            & (_given.slot_name == device.slot_name)
            & (_given.device_index == device.device_index),
        )
        .join(tasks, tasks.c.id == _given.task_id)
        # One that vanished has no capacity any more, and keeps what it has until that ends.
        .where(_given.freed_at.is_(None), tasks.c.preempted_by.is_(None), device.capacity > 0)
        .group_by(nodes.c.name, device.slot_name, device.device_index, device.capacity)
        .having(given > device.capacity)
    )
    return found + [
        Finding("device within capacity", f"node {name}, {slot} {index}", f"at most {most}", str(there))
        for name, slot, index, most, there in shared
    ]


async def _check_holds(connection: AsyncConnection) -> Iterator[Finding]:
    """A place is kept for exactly the tasks that are RESERVED, where they are."""
    reserved, kept = tasks.c.status == TaskStatus.RESERVED, holds.c.id.is_not(None)
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.status, tasks.c.node_id, holds.c.id.label("hold"), holds.c.node_id.label("kept"))
        .outerjoin(holds, holds.c.task_id == tasks.c.id)
        .where(
            or_(reserved & ~kept, ~reserved & kept, reserved & kept & holds.c.node_id.is_distinct_from(tasks.c.node_id))
        )
    )
    return (_of_hold(row) for row in rows.all())


def _of_hold(row: Any) -> Finding:
    expected, found = f"a hold on node {row.node_id}", f"on {row.kept}"
    if row.hold is None:
        expected, found = "a hold", "none"
    elif row.status != TaskStatus.RESERVED:
        expected, found = "no hold", f"hold {row.hold}"
    return Finding("reserved = held", f"task {row.id} ({row.status})", expected, found)


async def _check_tasks(connection: AsyncConnection) -> list[Finding]:
    """A task occupies exactly while its status says so, and what it requested."""
    task, occupying = tasks.c, list(OCCUPYING)
    ended = [status for status in TaskStatus if is_end(status) and status is not TaskStatus.LOST]
    asked = select(task.id, task.status, task.node_name)
    homeless = await connection.execute(
        asked.where(task.status.in_(occupying), or_(task.node_id.is_(None), task.freed_at.is_not(None)))
    )
    unfreed = await connection.execute(asked.where(task.status.in_(ended), task.freed_at.is_(None)))
    occupied = _ledger.held + _ledger.reserved + _ledger.used
    unequal = await connection.execute(
        select(task.id, task.status, _ledger.slot_name, _ledger.requested, occupied)
        .join(resource_allocations, _ledger.task_id == task.id)
        .where(task.status.in_(occupying), occupied != _ledger.requested)
    )
    return [
        *(
            Finding("occupying tasks have a node", f"task {id} ({status})", "a node, not freed", f"{node}")
            for id, status, node in homeless
        ),
        *(
            Finding("ended tasks are freed", f"task {id} ({status})", "freed", "still charged")
            for id, status, _ in unfreed
        ),
        *(
            Finding("occupies what it requested", f"task {id} ({status})", f"{slot} {requested}", f"{slot} {amount}")
            for id, status, slot, requested, amount in unequal
        ),
    ]


async def _check_volumes(connection: AsyncConnection) -> list[Finding]:
    """A task is where all volumes are that it mounts, except for those that all nodes have."""
    task, volume = tasks.c, volumes.c
    apart = await connection.execute(
        select(task.id, task.status, task.node_name, volume.name, volume.node_name.label("home"))
        .join(workload_volumes, workload_volumes.c.workload_id == task.workload_id)
        .join(volumes, volume.id == workload_volumes.c.volume_id)
        .where(task.status.in_(list(OCCUPYING)), ~volume.shared, task.node_id.is_distinct_from(volume.node_id))
        .order_by(task.id, volume.name)
    )
    return [
        Finding("tasks are where their volumes are", f"task {id} ({status}), volume {name}", f"{home}", f"{node}")
        for id, status, node, name, home in apart
    ]


async def _check_workloads(connection: AsyncConnection) -> list[Finding]:
    """A workload has as many current tasks as it wants, each once, and the status that they make."""
    own, number = workloads.c, func.count(tasks.c.id)
    current = (tasks.c.workload_id == own.id) & tasks.c.current
    counts = await connection.execute(
        select(own.id, own.status, own.replicas, number)
        .outerjoin(tasks, current)
        .group_by(own.id, own.status, own.replicas)
        # While tasks are replaced there may be some more, or fewer.
        .where(own.rolling.is_(False))
        .having(number != own.replicas)
    )
    doubled = await connection.execute(
        select(own.id, own.status)
        .join(tasks, current)
        .group_by(own.id, own.status, tasks.c.task_index)
        .having(number > 1)
        .distinct()
    )
    return [
        *(
            Finding("as many tasks as wanted", f"workload {id} ({status})", str(replicas), str(found))
            for id, status, replicas, found in counts
        ),
        *(
            Finding("one current attempt per task", f"workload {id} ({status})", "each index once", "doubled")
            for id, status in doubled
        ),
        *await _check_statuses(connection),
    ]


async def _check_statuses(connection: AsyncConnection) -> list[Finding]:
    """Most workloads are in one of a few situations, each of which is derived once."""
    statement = _SITUATIONS.format(tasks=_TOLD[connection.dialect.name])
    rows = await connection.execute(text(f"{statement} SELECT DISTINCT {_FACTS} FROM situations"))
    findings: list[Finding] = []
    for situation in [dict(row._mapping) for row in rows]:
        status, derived = WorkloadStatus(situation["status"]), _derived(**situation)
        if status is not derived:
            same = " AND ".join(f"{fact} = :{fact}" for fact in situation)
            wrong = await connection.execute(text(f"{statement} SELECT id FROM situations WHERE {same}"), situation)
            findings += [
                Finding("status follows from tasks", f"workload {as_uuid(id)} ({status})", derived, status)
                for (id,) in wrong
            ]
    return findings


_FACTS = "status, kind, stopping, is_array, replicas, tasks"
# The tasks of a situation are told as "RUNNING 3,TERMINATING+ 1"; a successor follows those with a +.
_TOLD = {
    "postgresql": "string_agg(status || ' ' || number, ',' ORDER BY status)",
    "sqlite": "group_concat(status || ' ' || number, ',')",
}
_SITUATIONS = """
    WITH counted AS (
        SELECT workload_id, status || CASE WHEN requeue THEN '+' ELSE '' END AS status, count(*) AS number
        FROM tasks WHERE current GROUP BY workload_id, status, requeue ORDER BY workload_id, status, requeue
    ),
    told AS (SELECT workload_id, {tasks} AS tasks FROM counted GROUP BY workload_id),
    situations AS (
        SELECT w.id, w.status, w.kind, w.stopping, w.array IS NOT NULL AS is_array, w.replicas,
            coalesce(t.tasks, '') AS tasks
        FROM workloads w LEFT JOIN told t ON t.workload_id = w.id
    )
"""


def _derived(status: str, kind: str, stopping: bool, is_array: bool, replicas: int, tasks: str) -> WorkloadStatus:
    current, own = WorkloadStatus(status), list(_statuses(tasks, bool(stopping)))
    if is_workload_end(current):
        alive = any(not is_end(task) for task in own)
        return WorkloadStatus.TERMINATING if alive else current
    service = kind == Kind.DEPLOYMENT
    return derive(current, own, desired=replicas, service=service, stopping=bool(stopping), array=bool(is_array))


def _statuses(told: str, stopping: bool) -> Iterator[TaskStatus]:
    for part in filter(None, told.split(",")):
        name, number = part.split(" ")
        status = as_derived(TaskStatus(name.rstrip("+")), requeue=name.endswith("+"), stopping=stopping)
        yield from repeat(status, int(number))
