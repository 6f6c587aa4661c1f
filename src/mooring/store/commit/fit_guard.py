"""The fit rule at commit: the nodes of a batch as they are now, and the capacity that the batch has taken so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.lifecycle import OCCUPYING, NodeStatus, TaskStatus
from mooring.model.resources.slots import Amounts, fits
from mooring.model.workloads.volumes import STORAGE
from mooring.store.commit.locked_workloads import Loaded, LoadedWorkload
from mooring.store.core.batch_sql import Statement
from mooring.store.core.types import as_uuid
from mooring.store.nodes.pools import MAX_TASKS

_ID = {"id": "uuid"}
_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_NODES = f"""
    SELECT i.ordinal, nodes.name, nodes.generation, nodes.status, nodes.schedulable, {MAX_TASKS}
    FROM {{rows}} i JOIN nodes ON nodes.id = i.id JOIN pools ON pools.id = nodes.pool_id ORDER BY nodes.id {{lock}}
"""
_READ_NODES = Statement(_NODES, _ID)
_LOCK_NODES = Statement(_NODES, _ID, lock="FOR NO KEY UPDATE OF nodes")
_COUNTERS = Statement(
    """
    SELECT i.ordinal, r.slot_name, r.allocatable, r.held, r.reserved, r.used, r.leaving
    FROM {rows} i JOIN node_resources r ON r.node_id = i.id
    """,
    _ID,
)
_TASKS = Statement(
    f"""
    SELECT i.ordinal, count(*), count(t.preempted_by) FROM {{rows}} i JOIN tasks t ON t.node_id = i.id
    WHERE t.status IN ({_occupying}) GROUP BY i.ordinal
    """,
    _ID,
)
_PORTS = Statement(
    """
    SELECT i.ordinal, p.protocol, p.port, p.task_id, t.preempted_by IS NOT NULL
    FROM {rows} i JOIN port_allocations p ON p.node_id = i.id JOIN tasks t ON t.id = p.task_id
    """,
    _ID,
)
_DEVICES = Statement(
    """
    SELECT i.ordinal, d.slot_name, d.device_index, d.capacity, d.taken
    FROM {rows} i JOIN node_devices d ON d.node_id = i.id
    """,
    _ID,
)
_DEVICES_OF_TASKS = Statement(
    """
    SELECT i.ordinal, a.slot_name, a.device_index, a.amount, a.task_id, t.preempted_by IS NOT NULL
    FROM {rows} i JOIN device_allocations a ON a.node_id = i.id JOIN tasks t ON t.id = a.task_id
    WHERE a.freed_at IS NULL
    """,
    _ID,
)

_LEAVES = frozenset({TaskStatus.RESERVED, TaskStatus.SCHEDULED, TaskStatus.PREPARING, TaskStatus.RUNNING})

Slot = tuple[UUID, str]
Port = tuple[UUID, str, int]
Device = tuple[UUID, str, int]
K = TypeVar("K")


class _Node(NamedTuple):
    name: str
    generation: int
    status: str
    schedulable: bool
    max_tasks: int | None


class _Counter(NamedTuple):
    allocatable: int
    held: int
    reserved: int
    used: int
    leaving: int


class _Claim:
    """Everything that one decision takes; added to the batch only if all of it fits."""

    __slots__ = ("amounts", "devices", "leaving", "leaving_devices", "leaving_tasks", "ports", "tasks", "victims")

    def __init__(self) -> None:
        self.amounts: dict[Slot, int] = {}
        self.tasks: dict[UUID, int] = {}
        self.ports: dict[Port, UUID] = {}
        self.devices: dict[Device, int] = {}
        self.leaving: dict[Slot, int] = {}
        self.leaving_tasks: dict[UUID, int] = {}
        self.leaving_devices: dict[Device, int] = {}
        self.victims: set[UUID] = set()


@dataclass(slots=True)
class FitGuard:
    nodes: dict[UUID, _Node]
    """Locked with their counters until the transaction ends, unless `read_unlocked` read them."""
    _loaded: Loaded
    _occupied: dict[UUID, dict[UUID, int]]
    """Number of tasks by workload and node."""
    _counters: dict[Slot, _Counter] | None = None
    """None after `read_unlocked`: the write of the counters checks whether everything fits."""
    _tasks: dict[UUID, int] = field(default_factory=dict)
    _ports: dict[Port, UUID] = field(default_factory=dict)
    _devices: dict[Device, tuple[int, int]] = field(default_factory=dict)
    """(capacity, taken)."""
    _devices_of: dict[UUID, list[tuple[Device, int]]] = field(default_factory=dict)
    _taken: dict[Slot, int] = field(default_factory=dict)
    _left: dict[Slot, int] = field(default_factory=dict)
    _leaving_tasks: dict[UUID, int] = field(default_factory=dict)
    _leaving_devices: dict[Device, int] = field(default_factory=dict)
    _leaving: set[UUID] = field(default_factory=set)
    """Tasks that are victims of a preemption."""

    @classmethod
    async def read(cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded) -> FitGuard:
        ids = _nodes_of(decisions)
        guard = cls(await _nodes(connection, _LOCK_NODES, ids), loaded, _occupied(loaded), {})
        rows = [(id,) for id in ids]
        if not rows:
            return guard
        if any(node.max_tasks is not None for node in guard.nodes.values()):
            for ordinal, number, leaving in await _TASKS.read(connection, rows):
                guard._tasks[ids[ordinal]] = number
                guard._leaving_tasks[ids[ordinal]] = leaving
        if any(_wants_ports(decision) for decision in decisions):
            for ordinal, protocol, port, task_id, leaves in await _PORTS.read(connection, rows):
                guard._ports[ids[ordinal], protocol, port] = as_uuid(task_id)
                if leaves:
                    guard._leaving.add(as_uuid(task_id))
        if any(placement.devices for decision in decisions for placement in decision.placements):
            waits = any(decision.outcome is Outcome.RESERVED for decision in decisions)
            await guard._read_devices(connection, ids, leaving=waits)
        found = await _COUNTERS.read(connection, rows)
        guard._counters = {(ids[ordinal], slot): _Counter(*amounts) for ordinal, slot, *amounts in found}
        return guard

    @classmethod
    async def read_unlocked(
        cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded
    ) -> FitGuard | None:
        """Read nodes without locks: the writes compare their generations to detect later changes.

        Return None if that is not enough, because other tasks of the nodes matter as well.
        """
        if any(decision.outcome is Outcome.RESERVED or _takes_ports_or_devices(decision) for decision in decisions):
            return None
        nodes = await _nodes(connection, _READ_NODES, _nodes_of(decisions))
        if any(node.max_tasks is not None for node in nodes.values()):
            return None
        return cls(nodes, loaded, _occupied(loaded))

    async def _read_devices(self, connection: AsyncConnection, ids: Sequence[UUID], *, leaving: bool) -> None:
        rows = [(id,) for id in ids]
        for ordinal, slot, index, capacity, taken in await _DEVICES.read(connection, rows):
            self._devices[ids[ordinal], slot, index] = (capacity, taken)
        if not leaving:
            return
        for ordinal, slot, index, amount, task_id, leaves in await _DEVICES_OF_TASKS.read(connection, rows):
            device = (ids[ordinal], slot, index)
            self._devices_of.setdefault(as_uuid(task_id), []).append((device, amount))
            if leaves:
                _add(self._leaving_devices, device, amount)

    def take(self, decision: Decision, brought: int = 0) -> str | None:
        """Take the capacity of a decision, wholly or not at all; return the conflict, if there is one.

        `brought`: bytes of volumes that are created on the node with its tasks.
        """
        workload = self._loaded.workloads[decision.workload.id]
        if self._counters is None and not workload.counts_tasks:
            for placement in decision.placements:
                changed = self._changed(placement)
                if changed is not None:
                    return changed
            return None
        claim = _Claim()
        conflict = self._claim_victims(decision, claim)
        for placement in decision.placements if conflict is None else ():
            conflict = self._claim_placement(decision, placement, workload, claim)
            if conflict is not None:
                break
        if brought and conflict is None:
            conflict = self._fit(decision, decision.placements[0], {STORAGE: brought}, claim)
        conflict = conflict or self._check_workload(workload, claim)
        if conflict is None:
            self._add_claim(workload, claim)
        return conflict

    def _claim_victims(self, decision: Decision, claim: _Claim) -> str | None:
        """Check that the victims are where the pass saw them and are not victims of another preemptor."""
        for victim in decision.victims:
            task = self._loaded.tasks.get(victim.task_id)
            if task is None or task.status not in _LEAVES or task.node_id != victim.node_id:
                return "a victim has ended or changed"
            if victim.task_id in self._leaving or victim.task_id in claim.victims:
                return "a victim is preempted by another workload"
            claim.victims.add(victim.task_id)
            _add(claim.leaving_tasks, victim.node_id, 1)
            for slot, amount in task.request.items():
                _add(claim.leaving, (victim.node_id, slot), amount)
            for device, amount in self._devices_of.get(victim.task_id, ()):
                _add(claim.leaving_devices, device, amount)
        return None

    def _claim_placement(
        self, decision: Decision, placement: Placement, workload: LoadedWorkload, claim: _Claim
    ) -> str | None:
        changed = self._changed(placement)
        if changed is not None:
            return changed
        id = placement.node_id
        node = self.nodes[id]
        if node.max_tasks is not None or workload.counts_tasks:
            _add(claim.tasks, id, 1)
        # Only a hold that waits for victims may count on the capacity that they free.
        waits = decision.outcome is Outcome.RESERVED
        if node.max_tasks is not None:
            there = self._tasks.get(id, 0) + claim.tasks[id]
            if waits:
                there -= self._leaving_tasks.get(id, 0) + claim.leaving_tasks.get(id, 0)
            if there > node.max_tasks:
                return f"node {node.name} has reached its maximum number of tasks"
        limit = workload.max_per_node
        if limit is not None and self._occupied.get(workload.id, {}).get(id, 0) + claim.tasks[id] > limit:
            return f"node {node.name} has the maximum number of tasks of this workload"
        for protocol, port in ports_of(decision, placement):
            holder = claim.ports.get((id, protocol, port)) or self._ports.get((id, protocol, port))
            if holder is not None and not (waits and (holder in claim.victims or holder in self._leaving)):
                return f"port {port} of node {node.name} is in use"
            claim.ports[id, protocol, port] = placement.task_id
        for slot, index, amount in placement.devices:
            device = (id, slot, index)
            capacity, taken = self._devices.get(device, (0, 0))
            leaving = self._leaving_devices.get(device, 0) + claim.leaving_devices.get(device, 0) if waits else 0
            if taken + _add(claim.devices, device, amount) - leaving > capacity:
                return f"device {index} of node {node.name} has too little {slot} left"
        return self._fit(decision, placement, decision.workload.request, claim)

    def _changed(self, placement: Placement) -> str | None:
        node = self.nodes.get(placement.node_id)
        if node is None:
            return f"node {placement.node_name} was removed"
        if node.generation != placement.node_generation or node.status != NodeStatus.READY or not node.schedulable:
            return f"node {node.name} changed"
        return None

    def _fit(self, decision: Decision, placement: Placement, asked: Amounts, claim: _Claim) -> str | None:
        if self._counters is None:
            return None
        for slot, request in asked.items():
            key = (placement.node_id, slot)
            counter = self._counters.get(key)
            if counter is None:
                if request:
                    return f"node {placement.node_name} has no {slot}"
                continue
            allocatable = counter.allocatable
            if decision.outcome is Outcome.RESERVED:
                allocatable += counter.leaving + self._left.get(key, 0) + claim.leaving.get(key, 0)
            reserved = counter.reserved + self._taken.get(key, 0) + claim.amounts.get(key, 0)
            if not fits(allocatable, counter.held, reserved, counter.used, request):
                return f"node {placement.node_name} has too little {slot} left"
            _add(claim.amounts, key, request)
        return None

    def _check_workload(self, workload: LoadedWorkload, claim: _Claim) -> str | None:
        """Check the rules about all tasks of the workload: single node, parallel tasks, minimum number of tasks."""
        if not workload.counts_tasks:
            return None
        own = self._occupied.get(workload.id, {})
        if workload.single_node and len(own.keys() | claim.tasks.keys()) > 1:
            return "all tasks of the workload have to be on one node"
        total = sum(own.values()) + sum(claim.tasks.values())
        if workload.parallel is not None and total > workload.parallel:
            return f"at most {workload.parallel} tasks of the workload run at the same time; there would be {total}"
        if workload.min_tasks is not None:
            # It may have fewer tasks left: some have succeeded, or it was scaled down.
            least = min(workload.min_tasks, sum(own.values()) + self._loaded.pending(workload.id))
            if total < least:
                return f"at least {least} tasks have to start at the same time; there are {total}"
        return None

    def _add_claim(self, workload: LoadedWorkload, claim: _Claim) -> None:
        if claim.tasks:
            own = self._occupied.setdefault(workload.id, {})
            for node_id, number in claim.tasks.items():
                _add(self._tasks, node_id, number)
                _add(own, node_id, number)
        for key, amount in claim.amounts.items():
            _add(self._taken, key, amount)
        self._ports.update(claim.ports)
        for device, amount in claim.devices.items():
            capacity, taken = self._devices[device]
            self._devices[device] = (capacity, taken + amount)
        for node_id, number in claim.leaving_tasks.items():
            _add(self._leaving_tasks, node_id, number)
        for key, amount in claim.leaving.items():
            _add(self._left, key, amount)
        for device, amount in claim.leaving_devices.items():
            _add(self._leaving_devices, device, amount)
        self._leaving |= claim.victims


def ports_of(decision: Decision, placement: Placement) -> tuple[tuple[str, int], ...]:
    """Return the ports that the task gets: those that it requested by number, and those that were chosen for it."""
    if not (placement.ports or decision.workload.constraints.host_ports):
        return ()
    named = tuple((port.protocol, port.port) for port in decision.workload.constraints.host_ports)
    return named + tuple(("TCP", port) for port in placement.ports)


def _nodes_of(decisions: Sequence[Decision]) -> list[UUID]:
    return list(
        {p.node_id: None for decision in decisions for p in decision.placements}
        | {v.node_id: None for decision in decisions for v in decision.victims}
    )


async def _nodes(connection: AsyncConnection, statement: Statement, ids: Sequence[UUID]) -> dict[UUID, _Node]:
    found = await statement.read(connection, [(id,) for id in ids]) if ids else ()
    return {ids[ordinal]: _Node(*facts) for ordinal, *facts in found}


def _takes_ports_or_devices(decision: Decision) -> bool:
    """Return whether it takes ports or devices, which no counter guards."""
    return _wants_ports(decision) or bool([placement for placement in decision.placements if placement.devices])


def _wants_ports(decision: Decision) -> bool:
    constraints = decision.workload.constraints
    return bool(constraints.host_ports or constraints.ports_wanted)


def _occupied(loaded: Loaded) -> dict[UUID, dict[UUID, int]]:
    occupied: dict[UUID, dict[UUID, int]] = {}
    for task in loaded.tasks.values():
        if task.node_id is not None and task.status in OCCUPYING:
            _add(occupied.setdefault(task.workload_id, {}), task.node_id, 1)
    return occupied


def _add(sums: dict[K, int], key: K, amount: int) -> int:
    """Add the amount to the sum of a key, and return the new sum."""
    total = sums[key] = sums.get(key, 0) + amount
    return total
