"""The nodes that a batch of decisions is about, as they are now, and what the batch has taken of them so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Outcome, Placement
from mooring.model.lifecycle import OCCUPYING, NodeStatus, TaskStatus
from mooring.model.slots import Amounts, fits
from mooring.model.volumes import STORAGE
from mooring.store.loading import Loaded, LoadedWorkload
from mooring.store.pools import MOST_TASKS
from mooring.store.sets import Statement
from mooring.store.types import as_uuid

_ID = {"id": "uuid"}
_occupying = ", ".join(f"'{status}'" for status in sorted(OCCUPYING))
_NODES = f"""
    SELECT i.ordinal, nodes.name, nodes.generation, nodes.status, nodes.schedulable, {MOST_TASKS}
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


class _Share:
    """What one decision takes, counted in only when all of it can be had."""

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
class Guard:
    nodes: dict[UUID, _Node]
    """Locked until the transaction ends, and with them their counters, unless it was a `glance`."""
    _loaded: Loaded
    _occupied: dict[UUID, dict[UUID, int]]
    """How many tasks each workload has on each node."""
    _counters: dict[Slot, _Counter] | None = None
    """None after a `glance`: the write of the counters will say whether everything fits."""
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
    """Tasks that are victims."""

    @classmethod
    async def read(cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded) -> Guard:
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
    async def glance(cls, connection: AsyncConnection, decisions: Sequence[Decision], loaded: Loaded) -> Guard | None:
        """Without locks: a change that comes later is to be seen by the generations of the nodes.

        None where that would not be enough, since other tasks of the nodes count as well.
        """
        if any(decision.outcome is Outcome.RESERVED or _names_things(decision) for decision in decisions):
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
        """Count the decision in, wholly or not at all; what stands in the way, if anything does.

        `brought`: bytes of volumes that come to the node of its tasks with them.
        """
        workload = self._loaded.workloads[decision.workload.id]
        if self._counters is None and not workload.counts_tasks:
            for placement in decision.placements:
                changed = self._changed(placement)
                if changed is not None:
                    return changed
            return None
        share = _Share()
        conflict = self._displace(decision, share)
        for placement in decision.placements if conflict is None else ():
            conflict = self._place(decision, placement, workload, share)
            if conflict is not None:
                break
        if brought and conflict is None:
            conflict = self._fit(decision, decision.placements[0], {STORAGE: brought}, share)
        conflict = conflict or self._together(workload, share)
        if conflict is None:
            self._count_in(workload, share)
        return conflict

    def _displace(self, decision: Decision, share: _Share) -> str | None:
        """The victims must be where the pass saw them, and nobody else's."""
        for victim in decision.victims:
            task = self._loaded.tasks.get(victim.task_id)
            if task is None or task.status not in _LEAVES or task.node_id != victim.node_id:
                return "a task that was to make room is gone or has changed"
            if victim.task_id in self._leaving or victim.task_id in share.victims:
                return "a task that was to make room makes room for another"
            share.victims.add(victim.task_id)
            _add(share.leaving_tasks, victim.node_id, 1)
            for slot, amount in task.request.items():
                _add(share.leaving, (victim.node_id, slot), amount)
            for device, amount in self._devices_of.get(victim.task_id, ()):
                _add(share.leaving_devices, device, amount)
        return None

    def _place(self, decision: Decision, placement: Placement, workload: LoadedWorkload, share: _Share) -> str | None:
        changed = self._changed(placement)
        if changed is not None:
            return changed
        id = placement.node_id
        node = self.nodes[id]
        if node.max_tasks is not None or workload.counts_tasks:
            _add(share.tasks, id, 1)
        # Only a place that is kept until victims have left may count on their leaving.
        waits = decision.outcome is Outcome.RESERVED
        if node.max_tasks is not None:
            there = self._tasks.get(id, 0) + share.tasks[id]
            if waits:
                there -= self._leaving_tasks.get(id, 0) + share.leaving_tasks.get(id, 0)
            if there > node.max_tasks:
                return f"node {node.name} has all the tasks that it may have"
        limit = workload.max_per_node
        if limit is not None and self._occupied.get(workload.id, {}).get(id, 0) + share.tasks[id] > limit:
            return f"node {node.name} has a task of this workload already"
        for protocol, port in ports_of(decision, placement):
            holder = share.ports.get((id, protocol, port)) or self._ports.get((id, protocol, port))
            if holder is not None and not (waits and (holder in share.victims or holder in self._leaving)):
                return f"port {port} of node {node.name} is taken"
            share.ports[id, protocol, port] = placement.task_id
        for slot, index, amount in placement.devices:
            device = (id, slot, index)
            capacity, taken = self._devices.get(device, (0, 0))
            leaving = self._leaving_devices.get(device, 0) + share.leaving_devices.get(device, 0) if waits else 0
            if taken + _add(share.devices, device, amount) - leaving > capacity:
                return f"device {index} of node {node.name} has too little {slot} left"
        return self._fit(decision, placement, decision.workload.request, share)

    def _changed(self, placement: Placement) -> str | None:
        node = self.nodes.get(placement.node_id)
        if node is None:
            return f"node {placement.node_name} was removed"
        if node.generation != placement.node_generation or node.status != NodeStatus.READY or not node.schedulable:
            return f"node {node.name} changed"
        return None

    def _fit(self, decision: Decision, placement: Placement, asked: Amounts, share: _Share) -> str | None:
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
                allocatable += counter.leaving + self._left.get(key, 0) + share.leaving.get(key, 0)
            reserved = counter.reserved + self._taken.get(key, 0) + share.amounts.get(key, 0)
            if not fits(allocatable, counter.held, reserved, counter.used, request):
                return f"node {placement.node_name} has too little {slot} left"
            _add(share.amounts, key, request)
        return None

    def _together(self, workload: LoadedWorkload, share: _Share) -> str | None:
        """What the workload demands of its tasks as a whole."""
        if not workload.counts_tasks:
            return None
        own = self._occupied.get(workload.id, {})
        if workload.single_node and len(own.keys() | share.tasks.keys()) > 1:
            return "all tasks of the workload have to be on one node"
        together = sum(own.values()) + sum(share.tasks.values())
        if workload.parallel is not None and together > workload.parallel:
            return f"{workload.parallel} tasks of the workload run at the same time; there would be {together}"
        if workload.min_tasks is not None:
            # Fewer may be left of it: some have done their work, or it was scaled down.
            least = min(workload.min_tasks, sum(own.values()) + self._loaded.pending(workload.id))
            if together < least:
                return f"{least} tasks start together or none; there are {together}"
        return None

    def _count_in(self, workload: LoadedWorkload, share: _Share) -> None:
        if share.tasks:
            own = self._occupied.setdefault(workload.id, {})
            for node_id, number in share.tasks.items():
                _add(self._tasks, node_id, number)
                _add(own, node_id, number)
        for key, amount in share.amounts.items():
            _add(self._taken, key, amount)
        self._ports.update(share.ports)
        for device, amount in share.devices.items():
            capacity, taken = self._devices[device]
            self._devices[device] = (capacity, taken + amount)
        for node_id, number in share.leaving_tasks.items():
            _add(self._leaving_tasks, node_id, number)
        for key, amount in share.leaving.items():
            _add(self._left, key, amount)
        for device, amount in share.leaving_devices.items():
            _add(self._leaving_devices, device, amount)
        self._leaving |= share.victims


def ports_of(decision: Decision, placement: Placement) -> tuple[tuple[str, int], ...]:
    """The ports that become the task's: those it named, and those that were picked for it."""
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


def _names_things(decision: Decision) -> bool:
    """Ports or devices of its nodes, which no counter guards."""
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
    """The sum with the amount."""
    total = sums[key] = sums.get(key, 0) + amount
    return total
