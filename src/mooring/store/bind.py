"""The guarded commit of placements: the one fit rule, checked under the locks of the rows that it is about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Placement
from mooring.model.lifecycle import OCCUPYING, ON_THE_WAY_OUT, NodeStatus, TaskStatus
from mooring.model.slots import fits
from mooring.store import transitions
from mooring.store.changes import Applied, Change
from mooring.store.chunks import chunks
from mooring.store.loading import Loaded, load
from mooring.store.tables import node_resources, nodes, port_allocations, tasks
from mooring.store.types import AnyRow


@dataclass(slots=True)
class Bound:
    """What became of the decisions of a batch, by workload."""

    bound: list[Decision] = field(default_factory=list)
    conflicts: list[tuple[Decision, str]] = field(default_factory=list)
    """Someone else was there first: back to placing."""
    dropped: list[Decision] = field(default_factory=list)
    """Cancelled or changed since the pass read them."""
    applied: Applied = field(default_factory=Applied)


async def bind(connection: AsyncConnection, decisions: Sequence[Decision], *, now: datetime, term: int) -> Bound:
    """Reserve what fits in one transaction; a workload that does not fit any more hurts nobody else."""
    result = Bound()
    loaded = await load(connection, workload_ids=[decision.workload.id for decision in decisions])
    statuses = {task_id: task["status"] for task_id, task in loaded.tasks.items()}
    occupied = _occupied(loaded)
    node_ids = sorted({p.node_id for decision in decisions for p in decision.placements})
    guard = await _Guard.read(connection, node_ids, ports=any(_wants_ports(decision) for decision in decisions))
    changes: list[Change] = []
    for decision in decisions:
        workload = loaded.workloads.get(decision.workload.id)
        if (
            workload is None
            or workload.stopping
            or workload.status in ON_THE_WAY_OUT
            or any(statuses.get(p.task_id) != TaskStatus.PENDING for p in decision.placements)
        ):
            result.dropped.append(decision)
            continue
        conflict = guard.take(decision, occupied[workload.id], workload.max_per_node)
        if conflict is not None:
            result.conflicts.append((decision, conflict))
            continue
        result.bound.append(decision)
        changes.extend(
            Change(
                p.task_id,
                TaskStatus.SCHEDULED,
                node_id=p.node_id,
                node_name=p.node_name,
                score=p.score,
                ports=_ports(decision, p),
            )
            for p in decision.placements
        )
    result.applied = await transitions.apply(connection, changes, actor="scheduler", now=now, term=term, loaded=loaded)
    return result


def _occupied(loaded: Loaded) -> dict[UUID, Counter[UUID]]:
    """How many living tasks each workload has on each node."""
    occupied: dict[UUID, Counter[UUID]] = defaultdict(Counter)
    for task in loaded.tasks.values():
        if task["status"] in OCCUPYING and task["node_id"] is not None:
            occupied[task["workload_id"]][task["node_id"]] += 1
    return occupied


def _wants_ports(decision: Decision) -> bool:
    constraints = decision.workload.constraints
    return bool(constraints.host_ports or constraints.ports_wanted)


def _ports(decision: Decision, placement: Placement) -> tuple[tuple[str, int], ...]:
    """The ports that become the task's: those it named, and those that were picked for it."""
    named = tuple((port.protocol, port.port) for port in decision.workload.constraints.host_ports)
    return named + tuple(("TCP", port) for port in placement.ports)


class _Guard:
    """The nodes of a batch as they are now, and what the batch has taken of them so far."""

    def __init__(
        self,
        rows: dict[UUID, AnyRow],
        slots: dict[tuple[UUID, str], AnyRow],
        counts: Counter[UUID],
        ports: set[tuple[UUID, str, int]],
    ) -> None:
        self.nodes = rows
        self.slots = slots
        self.counts = counts
        self.ports = ports
        self.taken: Counter[tuple[UUID, str]] = Counter()

    @classmethod
    async def read(cls, connection: AsyncConnection, ids: Sequence[UUID], *, ports: bool) -> _Guard:
        rows: dict[UUID, AnyRow] = {}
        slots: dict[tuple[UUID, str], AnyRow] = {}
        for part in chunks(ids):
            found = await connection.execute(
                select(
                    nodes.c.id, nodes.c.name, nodes.c.generation, nodes.c.status, nodes.c.schedulable, nodes.c.max_tasks
                )
                .where(nodes.c.id.in_(part))
                .order_by(nodes.c.id)
                .with_for_update(read=True)
            )
            rows.update((row.id, row) for row in found)
            counters = await connection.execute(
                select(node_resources)
                .where(node_resources.c.node_id.in_(part))
                .order_by(node_resources.c.node_id, node_resources.c.slot_name)
                .with_for_update()
            )
            slots.update(((row.node_id, row.slot_name), row) for row in counters)
        counts: Counter[UUID] = Counter()
        limited = [row.id for row in rows.values() if row.max_tasks is not None]
        for part in chunks(limited):
            numbers = await connection.execute(
                select(tasks.c.node_id, func.count().label("number"))
                .where(tasks.c.node_id.in_(part), tasks.c.status.in_(list(OCCUPYING)))
                .group_by(tasks.c.node_id)
            )
            counts.update({row.node_id: row.number for row in numbers})
        open_ports: set[tuple[UUID, str, int]] = set()
        for part in chunks(ids) if ports else ():
            taken = await connection.execute(
                select(port_allocations.c.node_id, port_allocations.c.protocol, port_allocations.c.port).where(
                    port_allocations.c.node_id.in_(part)
                )
            )
            open_ports.update((row.node_id, row.protocol, row.port) for row in taken)
        return cls(rows, slots, counts, open_ports)

    def take(self, decision: Decision, own: Counter[UUID], max_per_node: int | None) -> str | None:
        """Count the decision in, wholly or not at all; what stands in the way, if anything does."""
        taken: Counter[tuple[UUID, str]] = Counter()
        arriving: Counter[UUID] = Counter()
        opened: set[tuple[UUID, str, int]] = set()
        for placement in decision.placements:
            node = self.nodes.get(placement.node_id)
            if node is None:
                return f"node {placement.node_name} was removed"
            if node.generation != placement.node_generation or node.status != NodeStatus.READY or not node.schedulable:
                return f"node {node.name} changed"
            arriving[node.id] += 1
            if node.max_tasks is not None and self.counts[node.id] + arriving[node.id] > node.max_tasks:
                return f"node {node.name} has all the tasks that it may have"
            if max_per_node is not None and own[node.id] + arriving[node.id] > max_per_node:
                return f"node {node.name} has a task of this workload already"
            for protocol, port in _ports(decision, placement):
                if (node.id, protocol, port) in self.ports or (node.id, protocol, port) in opened:
                    return f"port {port} of node {node.name} is taken"
                opened.add((node.id, protocol, port))
            for slot, request in decision.workload.request.items():
                key = (node.id, slot)
                counter = self.slots.get(key)
                if counter is None:
                    if request:
                        return f"node {node.name} has no {slot}"
                    continue
                before = self.taken[key] + taken[key]
                if not fits(counter.allocatable, counter.held, counter.reserved + before, counter.used, request):
                    return f"node {node.name} has too little {slot} left"
                taken[key] += request
        self.taken.update(taken)
        self.counts.update(arriving)
        self.ports |= opened
        return None
