"""Queries to a store after a step: what must hold is looked up in its rows, without the code that wrote them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import case, select

from mooring.model.lifecycle import OCCUPYING, TERMINATING_OR_ENDED, TaskStatus, is_end, is_legal
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.lifetime.rollouts import Phase
from mooring.model.workloads.workload import Kind
from mooring.store import tables
from mooring.store.core.constraint_columns import decode_constraints, decode_taints
from mooring.store.core.types import AnyRow
from mooring.store.tables import (
    device_allocations,
    node_devices,
    node_resources,
    nodes,
    resource_allocations,
    status_history,
    tasks,
    workloads,
)
from tests.store.harness import Harness

T = TaskStatus
_BOOKS = (
    "attempts",
    "device_allocations",
    "events",
    "holds",
    "node_devices",
    "node_resources",
    "port_allocations",
    "resource_allocations",
    "status_history",
    "tasks",
    "tenant_resources",
    "workloads",
)


async def books(harness: Harness) -> dict[str, list[tuple[Any, ...]]]:
    """All that commits write, so that two moments can be compared."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name in _BOOKS:
        table = tables.metadata.tables[name]
        rows = await harness.rows(select(table).order_by(*table.primary_key.columns))
        found[name] = [tuple(row) for row in rows]
    return found


async def outdated(harness: Harness) -> list[UUID]:
    """Tasks without a node of their own that are of no revision which they may have, or ask for something else.

    What fails while tasks are replaced comes again as it was; otherwise all are of the newest revision.
    """
    revisions = tables.workload_revisions
    own = (revisions.c.workload_id == workloads.c.id) & (revisions.c.number == tasks.c.revision)
    newest = workloads.c.revision == tasks.c.revision
    rows = await harness.rows(
        select(
            tasks.c.id,
            tasks.c.requested_slots,
            case((newest, workloads.c.requested_slots), else_=revisions.c.requested_slots).label("request"),
            (newest | (workloads.c.rollout["phase"].as_string() != Phase.DONE)).label("right"),
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .outerjoin(revisions, own)
        .where(tasks.c.current, tasks.c.status.in_([T.PENDING, T.RESERVED]))
    )
    return [row.id for row in rows if not row.right or row.requested_slots != row.request]


class Excess(NamedTuple):
    """The amount above the capacity of a slot or device: of the tasks that stay, and of those actually there."""

    staying: int
    there: int


async def excesses(harness: Harness) -> dict[tuple[UUID, str, int | None], Excess]:
    """Per slot and per device of a node what is too much there; none but a machine that shrank may make it so.

    What is held may count on what victims leave; what is not held any more may not.
    """
    found: dict[tuple[UUID, str, int | None], Excess] = {}
    for row in await harness.rows(select(node_resources)):
        assert min(row.held, row.reserved, row.used, row.leaving) >= 0
        there = row.reserved + row.used
        _note(found, (row.node_id, row.slot_name, None), row.allocatable, there + row.held - row.leaving, there)
    staying: Counter[tuple[UUID, str, int]] = Counter()
    there_now: Counter[tuple[UUID, str, int]] = Counter()
    given = select(device_allocations, tasks.c.status, tasks.c.preempted_by).join(
        tasks, tasks.c.id == device_allocations.c.task_id
    )
    for row in await harness.rows(given.where(device_allocations.c.freed_at.is_(None))):
        device = (row.node_id, row.slot_name, row.device_index)
        staying[device] += row.amount if row.preempted_by is None else 0
        there_now[device] += row.amount if row.status != T.RESERVED else 0
    for row in await harness.rows(select(node_devices)):
        device = (row.node_id, row.slot_name, row.device_index)
        _note(found, device, row.capacity, staying[device], there_now[device])
    return found


def _note(
    found: dict[tuple[UUID, str, int | None], Excess],
    key: tuple[UUID, str, int | None],
    capacity: int,
    staying: int,
    there: int,
) -> None:
    excess = Excess(max(0, staying - capacity), max(0, there - capacity))
    if any(excess):
        found[key] = excess


async def check_edges(harness: Harness) -> None:
    """Each change of a task's status was legal and left one row of history and one event, up to the present one."""
    received: dict[UUID, list[str]] = defaultdict(list)
    statuses = {status.value for status in TaskStatus}
    feed = select(tables.events).where(tables.events.c.noun == "task").order_by(tables.events.c.revision)
    for row in await harness.rows(feed):
        if row.kind in statuses:
            received[row.object_id].append(row.kind)
    ways: dict[UUID, list[str]] = defaultdict(lambda: ["PENDING"])
    # A repair puts a damaged status back, which is no edge.
    edges = (status_history.c.noun == "task", status_history.c.actor.not_like("repair:%"))
    for row in await harness.rows(select(status_history).where(*edges).order_by(status_history.c.id)):
        way = ways[row.object_id]
        assert row.old_status == way[-1]
        assert is_legal(TaskStatus(row.old_status), TaskStatus(row.new_status))
        way.append(row.new_status)
    for task in await harness.rows(select(tasks)):
        assert ways[task.id][-1] == task.status
        assert ways[task.id][1:] == received[task.id]


class Placed(NamedTuple):
    """A task that occupies a node, with its workload's demands."""

    task: AnyRow
    workload: AnyRow
    constraints: Constraints


@dataclass(frozen=True)
class Placements:
    """The current placements."""

    nodes: Mapping[UUID, AnyRow]
    placed: Mapping[UUID, Placed]

    @classmethod
    async def read(cls, harness: Harness) -> Placements:
        machines = {row.id: row for row in await harness.rows(select(nodes))}
        owners = {row.id: row for row in await harness.rows(select(workloads))}
        demands = {id: decode_constraints(row.constraints) for id, row in owners.items()}
        occupying = select(tasks).where(tasks.c.status.in_(list(OCCUPYING))).order_by(tasks.c.id)
        placed = {
            task.id: Placed(task, owners[task.workload_id], demands[task.workload_id])
            for task in await harness.rows(occupying)
        }
        return cls(machines, placed)

    def check(self, new: Iterable[UUID]) -> None:
        """The demands of tasks that have just been placed hold, each beside all the others."""
        for one in (self.placed[task_id] for task_id in new if task_id in self.placed):
            node = self.nodes[one.task.node_id]
            assert node.status == "READY"
            assert node.schedulable
            for taint in decode_taints(node.taints):
                assert any(toleration.tolerates(taint) for toleration in one.constraints.tolerations)
            for key, value in one.constraints.node_selector:
                assert node.labels.get(key) == value
            self._check_ports(one)
            self._check_apart(one)
            self._check_spread(one)

    def _beside(self, one: Placed) -> list[Placed]:
        """Return the tasks that stay on the same node."""
        return [
            other
            for other in self.placed.values()
            if other is not one and other.task.node_id == one.task.node_id and other.task.preempted_by is None
        ]

    def _check_ports(self, one: Placed) -> None:
        taken = {(port.protocol, port.port) for port in one.constraints.host_ports}
        for other in self._beside(one):
            assert taken.isdisjoint((port.protocol, port.port) for port in other.constraints.host_ports)

    def _check_apart(self, one: Placed) -> None:
        for other in self._beside(one):
            for here, there in ((one, other), (other, one)):
                for term in here.constraints.anti_affinity:
                    assert term.topology_key == "node"
                    assert term.selector is not None
                    assert not term.selector.matches(dict(there.constraints.labels))

    def _check_spread(self, one: Placed) -> None:
        for rule in one.constraints.spread:
            key, selector = rule.topology_key, rule.selector
            assert selector is not None
            counts = {node.labels[key]: 0 for node in self.nodes.values() if key in node.labels}
            for other in self.placed.values():
                labels = self.nodes[other.task.node_id].labels
                if other.task.status != T.TERMINATING and selector.matches(dict(other.constraints.labels)):
                    counts[labels[key]] += 1
            own = counts[self.nodes[one.task.node_id].labels[key]]
            assert own - min(counts.values()) <= rule.max_skew


async def check_together(harness: Harness, new: Iterable[UUID]) -> None:
    """Gangs of jobs are placed wholly or not at all, `single_node` means one node, and enough start together."""
    own: dict[UUID, list[AnyRow]] = defaultdict(list)
    for task in await harness.rows(select(tasks).order_by(tasks.c.id)):
        own[task.workload_id].append(task)
    started = set(new)
    for workload in await harness.rows(select(workloads)):
        occupying = [task for task in own[workload.id] if task.status in OCCUPYING]
        if workload.single_node:
            assert len({task.node_id for task in occupying}) <= 1
        if workload.min_tasks is not None and started & {task.id for task in occupying}:
            left_out = [task for task in own[workload.id] if task.status == T.PENDING and task.current]
            assert len(occupying) >= workload.min_tasks or not left_out
        if workload.gang and workload.kind == Kind.SESSION and workload.status not in TERMINATING_OR_ENDED:
            wait = [_waits(task) for task in own[workload.id] if task.current and task.status != T.SUCCEEDED]
            # When one task of it is gone the others are stopped, and then it is pending again as a whole.
            gone = any(task.current and task.requeue and is_end(task.status) for task in own[workload.id])
            assert len(set(wait)) <= 1 or gone, [task.status for task in own[workload.id]]


def _waits(task: AnyRow) -> bool:
    """Return whether the task has no placement, or leaves the one it has to wait again."""
    status = TaskStatus(task.status)
    return status is T.PENDING or (task.requeue and (status is T.TERMINATING or is_end(status)))


async def check_devices(harness: Harness) -> None:
    """Every task has as much of its devices as it asked for, each of them once; ledger, counters and JSON agree."""
    shares: dict[UUID, list[tuple[int, int]]] = defaultdict(list)
    taken: Counter[tuple[UUID, int]] = Counter()
    for row in await harness.rows(select(device_allocations).where(device_allocations.c.freed_at.is_(None))):
        shares[row.task_id].append((row.device_index, row.amount))
        taken[row.node_id, row.device_index] += row.amount
    copies = {row.id: row.devices for row in await harness.rows(select(tasks)) if row.devices is not None}
    assert {id: {"gpu": sorted(map(list, own))} for id, own in shares.items()} == {
        id: {slot: sorted(own) for slot, own in copy.items()} for id, copy in copies.items()
    }
    ledger = resource_allocations.c
    asked = select(resource_allocations).where(ledger.slot_name == "gpu", ledger.freed_at.is_(None))
    for row in await harness.rows(asked):
        assert sum(amount for _, amount in shares[row.task_id]) == row.held + row.reserved + row.used
    counted = {(row.node_id, row.device_index): row.taken for row in await harness.rows(select(node_devices))}
    assert counted == {device: taken[device] for device in counted}
    assert taken.keys() <= counted.keys()
