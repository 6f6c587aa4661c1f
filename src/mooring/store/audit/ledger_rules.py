"""The audit: rules by which ledger, counters, readable copies and statuses agree, and the violations of them.

Each query returns violations only, so that a consistent database costs little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Table, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import (
    OCCUPYING,
    TaskStatus,
    WorkloadStatus,
    counted_status,
    derive,
    is_end,
    is_workload_end,
)
from mooring.model.workloads.workload import Kind
from mooring.store.audit import counters, evidence, inconsistencies, ledger_diff
from mooring.store.audit import tasks as task_audit
from mooring.store.audit import workloads as workload_audit
from mooring.store.audit.corrections import Correction, Verdict, shown
from mooring.store.core.chunks import chunks
from mooring.store.core.engine import allow_long_statements, writes_ledger_copies
from mooring.store.core.types import as_uuid
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
from mooring.store.workloads.arrays import DEFERRED, deferred_status

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
    """A violation of a rule."""

    rule: str
    subject: str
    expected: str
    found: str
    ambiguous: bool = False
    """The sources do not decide it, so a repair leaves it unchanged."""


@dataclass(frozen=True, slots=True)
class Audit:
    checked: dict[str, int]
    findings: list[Finding]


async def audit(connection: AsyncConnection) -> Audit:
    """Check all rules. The connection must have a snapshot."""
    await allow_long_statements(connection)
    of_records, affected = await wrong_records(connection)
    findings = [
        *of_records,
        *await _wrong_sums(connection, affected),
        *await _over_capacity(connection),
        *await _overbooked(connection),
        *await _check_volumes(connection),
        *await _check_workloads(connection),
    ]
    checked = {
        what: int((await connection.execute(select(func.count()).select_from(table))).scalar_one())
        for what, table in _COUNTED.items()
    }
    return Audit(checked, findings)


@dataclass(slots=True)
class _Affected:
    """Objects whose findings may only follow from the inconsistent records of a task."""

    workloads: set[UUID] = field(default_factory=set)
    nodes: set[UUID] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)


async def wrong_records(connection: AsyncConnection) -> tuple[list[Finding], _Affected]:
    """Return findings about records of tasks, workloads and capacities that contradict each other."""
    found: list[Finding] = []
    affected = _Affected()
    for part in chunks(await inconsistencies.in_tasks(connection)):
        batch = await evidence.load(connection, part)
        for own in batch.tasks.values():
            verdict = task_audit.reconcile(own, batch, copies=writes_ledger_copies(connection))
            found += _of_verdict(verdict)
            if verdict.corrections or verdict.unresolved:
                owner = own.workload
                affected.workloads.add(owner.id)
                affected.nodes |= {own.task.node_id, batch.node_named(own.task.node_name)} - {None}
                affected.tenants |= {owner.access_key, *map(str, (owner.user_id, owner.project_id, owner.domain_id))}
        found += [
            Finding("rows have a task", f"task {id}", "a task", "none", True) for id in part if id not in batch.tasks
        ]
    wrong = {*await inconsistencies.in_workloads(connection), *await with_wrong_status(connection)}
    for part in chunks(sorted(wrong - affected.workloads)):
        for workload in (await workload_audit.load(connection, part)).values():
            found += _of_verdict(workload_audit.reconcile(workload))
    return found + _of_verdict(await counters.capacities(connection)), affected


def _of_verdict(verdict: Verdict) -> list[Finding]:
    unresolved = [Finding(each.rule, each.subject, "a majority", each.found, True) for each in verdict.unresolved]
    return [*map(finding_of, verdict.corrections), *unresolved]


def finding_of(correction: Correction) -> Finding:
    after, before = _stated(correction, "after"), _stated(correction, "before")
    return Finding(correction.rule, correction.subject, after, before)


def _stated(correction: Correction, side: str) -> str:
    """Return the cells of a correction before or after it, as text."""
    missing = correction.inserts if side == "before" else correction.deletes
    if missing:
        return f"no row in {correction.table.name}"
    cells = (f"{cell.column} {shown(getattr(cell, side))}" for cell in correction.cells)
    return f"{correction.table.name} {', '.join(cells)}"


async def _wrong_sums(connection: AsyncConnection, affected: _Affected) -> list[Finding]:
    """Return counters of nodes, tenants and devices that differ from the sums of the ledger."""
    return [
        *(_of_node(wrong) for wrong in await ledger_diff.of_nodes(connection) if wrong.node_id not in affected.nodes),
        *(
            _of_tenant(wrong)
            for wrong in await ledger_diff.of_tenants(connection)
            if wrong.tenant_id not in affected.tenants
        ),
        *(
            _of_device(wrong)
            for wrong in await ledger_diff.of_devices(connection)
            if wrong.node_id not in affected.nodes
        ),
    ]


def _of_node(wrong: ledger_diff.NodeDiff) -> Finding:
    if wrong.node is None:
        return Finding("ledger = counters", f"node {wrong.node_id}, {wrong.slot}", "a counter row", "none")
    expected, found = _Counted(*wrong.expected), _Counted(*wrong.found)
    return Finding("ledger = counters", f"node {wrong.node}, {wrong.slot}", str(expected), str(found))


def _of_tenant(wrong: ledger_diff.TenantDiff) -> Finding:
    where = f" in pool {wrong.pool}" if wrong.pool else ""
    expected, found = ("reserved {} used {}".format(*amounts) for amounts in (wrong.expected, wrong.found))
    return Finding("ledger = tenants", f"{wrong.scope} {wrong.tenant_id}, {wrong.slot}{where}", expected, found)


def _of_device(wrong: ledger_diff.DeviceDiff) -> Finding:
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
        Finding("bookings within capacity", f"node {node}, {slot}", f"at most {allocatable}", str(promised))
        for node, slot, allocatable, promised in await ledger_diff.of_timeslots(connection)
    ]


async def _over_capacity(connection: AsyncConnection) -> list[Finding]:
    """Return nodes and devices above their capacity; what victims still occupy does not count."""
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
        # A device that disappeared has capacity 0; its tasks may keep it until they end.
        .where(_given.freed_at.is_(None), tasks.c.preempted_by.is_(None), device.capacity > 0)
        .group_by(nodes.c.name, device.slot_name, device.device_index, device.capacity)
        .having(given > device.capacity)
    )
    return found + [
        Finding("device within capacity", f"node {name}, {slot} {index}", f"at most {most}", str(there))
        for name, slot, index, most, there in shared
    ]


async def _check_volumes(connection: AsyncConnection) -> list[Finding]:
    """Check that tasks run on the node of the volumes that they mount; shared volumes are on all nodes."""
    task, volume = tasks.c, volumes.c
    misplaced = await connection.execute(
        select(task.id, task.status, task.node_name, volume.name, volume.node_name.label("home"))
        .join(workload_volumes, workload_volumes.c.workload_id == task.workload_id)
        .join(volumes, volume.id == workload_volumes.c.volume_id)
        .where(task.status.in_(list(OCCUPYING)), ~volume.shared, task.node_id.is_distinct_from(volume.node_id))
        .order_by(task.id, volume.name)
    )
    return [
        Finding("tasks are where their volumes are", f"task {id} ({status}), volume {name}", f"{home}", f"{node}")
        for id, status, node, name, home in misplaced
    ]


async def _check_workloads(connection: AsyncConnection) -> list[Finding]:
    """Check that a workload has as many current tasks as it wants, one per index."""
    own, number = workloads.c, func.count(tasks.c.id)
    current = (tasks.c.workload_id == own.id) & tasks.c.current
    counts = await connection.execute(
        select(own.id, own.status, own.replicas, number)
        .outerjoin(tasks, current)
        .group_by(own.id, own.status, own.replicas)
        # During a rolling update there may be more or fewer; arrays defer their tasks (see `audit.workloads`).
        .where(own.rolling.is_(False), own.array.is_(None))
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
    ]


async def with_wrong_status(connection: AsyncConnection) -> dict[UUID, tuple[WorkloadStatus, WorkloadStatus]]:
    """Return workloads whose status does not follow from their tasks: the stored status, and the derived one.

    Most workloads are in one of a few situations; the status is derived once per situation.
    """
    statement = _SITUATIONS.format(tasks=_TASK_COUNTS[connection.dialect.name], deferred=DEFERRED)
    rows = await connection.execute(text(f"{statement} SELECT DISTINCT {_FACTS} FROM situations"))
    found: dict[UUID, tuple[WorkloadStatus, WorkloadStatus]] = {}
    for situation in [dict(row._mapping) for row in rows]:
        status, derived = WorkloadStatus(situation["status"]), _derived(**situation)
        if status is not derived:
            same = " AND ".join(f"{fact} = :{fact}" for fact in situation)
            wrong = await connection.execute(text(f"{statement} SELECT id FROM situations WHERE {same}"), situation)
            found |= {as_uuid(id): (status, derived) for (id,) in wrong}
    return found


_FACTS = "status, kind, stopping, is_array, replicas, has_deferred, tasks"
# The tasks of a situation are written as "RUNNING 3,TERMINATING+ 1"; tasks with a + will be replaced.
_TASK_COUNTS = {
    "postgresql": "string_agg(status || ' ' || number, ',' ORDER BY status)",
    "sqlite": "group_concat(status || ' ' || number, ',')",
}
_SITUATIONS = """
    WITH counted AS (
        SELECT workload_id, status || CASE WHEN requeue THEN '+' ELSE '' END AS status, count(*) AS number
        FROM tasks WHERE current GROUP BY workload_id, status, requeue ORDER BY workload_id, status, requeue
    ),
    listed AS (SELECT workload_id, {tasks} AS tasks FROM counted GROUP BY workload_id),
    situations AS (
        SELECT w.id, w.status, w.kind, w.stopping, w.array IS NOT NULL AS is_array, w.replicas,
            {deferred} > 0 AS has_deferred, coalesce(t.tasks, '') AS tasks
        FROM workloads w LEFT JOIN listed t ON t.workload_id = w.id
    )
"""


def _derived(
    status: str, kind: str, stopping: bool, is_array: bool, replicas: int, has_deferred: bool, tasks: str
) -> WorkloadStatus:
    current, own = WorkloadStatus(status), list(_statuses(tasks, bool(stopping)))
    if is_workload_end(current):
        alive = any(not is_end(task) for task in own)
        return WorkloadStatus.TERMINATING if alive else current
    if has_deferred:
        own.append(deferred_status(ended=False, stopping=bool(stopping)))
    service = kind == Kind.DEPLOYMENT
    return derive(current, own, desired=replicas, service=service, stopping=bool(stopping), array=bool(is_array))


def _statuses(listed: str, stopping: bool) -> Iterator[TaskStatus]:
    for part in filter(None, listed.split(",")):
        name, number = part.split(" ")
        status = counted_status(TaskStatus(name.rstrip("+")), requeue=name.endswith("+"), stopping=stopping)
        yield from repeat(status, int(number))
