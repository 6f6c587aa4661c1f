"""The columnar cluster: one row per node, one array per property, so that one operation answers for all nodes.

Rows are reused and their order has no meaning: among equal nodes the lowest name wins (`precedence`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes.node import Node
from mooring.model.resources.devices import DeviceShare
from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.slots import Amounts
from mooring.model.resources.task_resources import check_overcommit, overcommitted
from mooring.model.workloads.constraints import (
    NODE_NAME_FIELD,
    Constraints,
    HostPort,
    Taint,
)
from mooring.scheduling.cluster.arrays import (
    Amount,
    Demand,
    Mask,
    Rows,
    Scores,
)
from mooring.scheduling.cluster.device_columns import DeviceColumns
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.host_ports import with_host_ports
from mooring.scheduling.cluster.images import ImageIndex
from mooring.scheduling.cluster.journal import Journal
from mooring.scheduling.cluster.node_properties import fixed_point_load, static_properties
from mooring.scheduling.cluster.placed_tasks import PlacedTasks
from mooring.scheduling.cluster.shapes import Request, Shape
from mooring.scheduling.cluster.typical_requests import TypicalRequest
from mooring.scheduling.cluster.value_codes import Codes, LabelColumn

CPU, MEMORY = 0, 1
"""The slots that every cluster has, at fixed positions on the slot axis."""

NODE_NAME = NODE_NAME_FIELD
"""The key that stands for the node's name in place of a label: every node is a domain of its own."""

_FEW = 16
"""Up to this many tasks are counted one by one, which then costs less than array operations."""
NOBODY = -1
"""The code in `pool` of a row that holds no node."""


class ClusterColumns:
    """All nodes as columns. Two-dimensional columns are [slot, row]; a slot that a node lacks is 0 there.

    `changes` records every row whose answers may have changed, `static_changes` those where more than counters did.
    """

    def __init__(
        self, nodes: Iterable[Node] = (), *, overcommit: Mapping[str, Mapping[str, Fraction]] | None = None
    ) -> None:
        """`overcommit`: per pool the factor by which a compressible slot may be overcommitted."""
        self.overcommit = dict(overcommit or {})
        for ratios in self.overcommit.values():
            check_overcommit(ratios)
        self.changes = Journal()
        self.static_changes = Journal()
        self.membership = 0
        """Incremented when a node is added, removed or renamed, which may change the precedence of others."""

        self.pools: Codes[str] = Codes()
        self.runtime_sets: Codes[frozenset[str]] = Codes()
        self.architectures: Codes[str] = Codes()
        self.regions: Codes[str | None] = Codes()
        self.owners: Codes[UUID | None] = Codes()
        self.isolations: Codes[tuple[str, str]] = Codes()
        """The isolation that nodes have, and that their pools require."""
        self.taint_sets: Codes[tuple[Taint, ...]] = Codes()
        self.machine_images: Codes[tuple[str | None, str]] = Codes()
        self.licences: Codes[str | None] = Codes()

        capacity = 64
        self.allocatable: Amount = np.zeros((4, capacity), dtype=np.int64)
        self.taken: Amount = np.zeros((4, capacity), dtype=np.int64)
        """held + reserved + used + assumed by the pass."""
        self.inverse: NDArray[np.float64] = np.zeros((4, capacity), dtype=np.float64)
        """1 / allocatable, 0 if that is 0."""
        self.uncounted: Amount = np.zeros((2, capacity), dtype=np.int64)
        """CPU and memory that scoring adds to the taken amounts for containers without a request."""
        self.tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.max_tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.ready: Mask = np.zeros(capacity, dtype=np.bool_)
        self.cordoned: Mask = np.zeros(capacity, dtype=np.bool_)
        """Ready, but not schedulable."""
        self.pool: Amount = np.full(capacity, NOBODY, dtype=np.int64)
        self.runtimes: Amount = np.zeros(capacity, dtype=np.int64)
        self.architecture: Amount = np.zeros(capacity, dtype=np.int64)
        self.region: Amount = np.zeros(capacity, dtype=np.int64)
        self.owner: Amount = np.zeros(capacity, dtype=np.int64)
        self.isolation: Amount = np.zeros(capacity, dtype=np.int64)
        self.taints: Amount = np.zeros(capacity, dtype=np.int64)
        self.machine_image: Amount = np.zeros(capacity, dtype=np.int64)
        self.licence: Amount = np.zeros(capacity, dtype=np.int64)
        self.sessions_allowed: Amount = np.zeros(capacity, dtype=np.int64)
        self.ports_offered: Amount = np.zeros(capacity, dtype=np.int64)
        self.cpu_load: Amount = np.zeros(capacity, dtype=np.int64)
        self.memory_load: Amount = np.zeros(capacity, dtype=np.int64)
        """Measured load in fixed point: SCORE_ONE is 100 percent."""
        self.nodes: list[Node | None] = [None] * capacity
        """The nodes as last upserted, for properties without a column. Counters are in the columns."""

        self.placed_tasks = PlacedTasks(capacity)
        """The properties of placed tasks that the constraints of other tasks refer to."""
        self.devices = DeviceColumns(capacity)
        """The single devices of device slots, and the rules for allocating them."""
        self._label_columns: dict[str, LabelColumn] = {}
        self._images = ImageIndex()
        self._slot_of: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        self._row_of: dict[UUID, int] = {}
        self._unused = list(range(capacity - 1, -1, -1))
        self.shapes: dict[UUID, tuple[tuple[object, ...], Shape]] = {}
        """By workload, the properties that its shape depends on, and the shape, as `shape_of` notes them."""
        self.distinct_shapes: dict[Shape, Shape] = {}
        self._demands: dict[tuple[Request, tuple[int, int]], Demand] = {}
        self._rows: Rows | None = None
        self._precedence: Scores | None = None
        for node in nodes:
            self.upsert(node)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def capacity(self) -> int:
        """The number of rows, in use or not."""
        return len(self.nodes)

    @property
    def rows(self) -> Rows:
        """The rows that hold a node."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.pool != NOBODY)
        return self._rows

    @property
    def precedence(self) -> Scores:
        """The tie-breaker: highest for the lowest name, distinct, below `capacity`; 0 for unused rows."""
        if self._precedence is None:
            present = [(node.name, node.id.int, row) for row, node in enumerate(self.nodes) if node is not None]
            present.sort(reverse=True)
            self._precedence = np.zeros(self.capacity, dtype=np.int64)
            self._precedence[[row for _, _, row in present]] = np.arange(len(present))
        return self._precedence

    def row_of(self, node_id: UUID) -> int | None:
        return self._row_of.get(node_id)

    def node(self, row: int) -> Node:
        node = self.nodes[row]
        if node is None:
            raise KeyError(f"row {row} holds no node")
        return node

    def rows_of_pool(self, pool: str) -> Rows:
        return np.flatnonzero(self.pool == self.pools.code(pool))

    def nodes_of(self, pool: str) -> list[Node]:
        return [self.node(row) for row in self.rows_of_pool(pool).tolist()]

    def capacity_of(self, pool: str) -> dict[str, int]:
        """Return the total allocatable amounts of a pool."""
        totals = self.allocatable[:, self.rows_of_pool(pool)].sum(axis=1).tolist()
        return dict(zip(self.slot_names, totals, strict=False))

    def upsert(self, node: Node) -> None:
        """Take over a node as the store has it; counters that a pass assumed on it are overwritten."""
        allocatable, taken = self._amounts(node)
        row = self._row_of.get(node.id)
        before = self.nodes[row] if row is not None else None
        if row is None:
            row = self._take_row(node.id)
        counters_moved = self._write_counters(row, node, allocatable, taken)
        counters_moved |= self.devices.write(row, node, partial(self._offered_and_taken, row))
        if before is None or static_properties(before) != static_properties(node):
            self._write_static(row, node)
            self.static_changes.note((row,))
            self.changes.note((row,))
        elif counters_moved:
            self.changes.note((row,))
        if before is None or before.name != node.name:
            self._forget_order()
        self.nodes[row] = node

    def remove(self, node_id: UUID) -> None:
        """Forget a node; an unknown one is ignored. Its row is cleared, since plugins may sum over columns."""
        row = self._row_of.pop(node_id, None)
        if row is None:
            return
        self.nodes[row] = None
        self.pool[row] = NOBODY
        self.ready[row] = False
        self.allocatable[:, row] = 0
        self.inverse[:, row] = 0
        self.taken[:, row] = 0
        self.uncounted[:, row] = 0
        self.tasks[row] = 0
        self.cordoned[row] = False
        self.placed_tasks.clear(row)
        self.placed_tasks.set_occupied_ports(row, ())
        self.devices.clear(row)
        for column in self._label_columns.values():
            column.write(row, None)
        self._images.clear(row)
        self._unused.append(row)
        self._forget_order()
        self.static_changes.note((row,))
        self.changes.note((row,))

    def set_load(self, node_id: UUID, cpu_percent: float, memory_percent: float) -> None:
        """Set the measured load of a node in percent. An unknown node is ignored: it may just have left."""
        row = self._row_of.get(node_id)
        if row is not None and self._write_load(row, cpu_percent, memory_percent):
            self.changes.note((row,))

    def set_tasks(
        self,
        node_id: UUID,
        tasks: Iterable[tuple[Constraints, int]],
        *,
        leaving: Iterable[tuple[Constraints, int]] = (),
    ) -> None:
        """Set the tasks on a node as the store has them; assumptions of a pass are overwritten.

        Each entry is the constraints of equal tasks and their number. Tasks in `leaving` are about to end.
        """
        row = self._row_of.get(node_id)
        if row is None:
            return
        self.placed_tasks.clear(row)
        for constraints, count in tasks:
            self.placed_tasks.add(row, constraints, count)
        for constraints, count in leaving:
            self.placed_tasks.add(row, constraints, count, leaving=True)
        self.changes.note((row,))

    def label_project(self, project: str, labels: Mapping[str, str]) -> None:
        """Set the labels of a project, by which affinity terms select it."""
        self.placed_tasks.label_project(project, labels)
        self.changes.note(self.rows.tolist())

    def allow_fragmentation(self, pool: str, allowed: bool = True) -> None:
        """Set whether a pool may split a request over more devices than necessary if it fits nowhere otherwise."""
        if self.devices.allow_fragmentation(pool, allowed):
            self.changes.note(self.rows_of_pool(pool).tolist())

    def set_typical_requests(self, pool: str, typical: Iterable[TypicalRequest]) -> None:
        """Set the typical requests of a pool, by which the fragmentation of its devices is measured."""
        if self.devices.set_typical_requests(pool, tuple(typical)):
            self.changes.note(self.rows_of_pool(pool).tolist())

    def set_learned_requests(self, pool: str, learned: Iterable[TypicalRequest]) -> None:
        """Set the requests learned from the workloads of a pool, which count unless typical ones are set."""
        self.devices.set_learned_requests(pool, tuple(learned))
        self.changes.note(self.rows_of_pool(pool).tolist())

    @property
    def vocabulary(self) -> int:
        """Incremented when something new appears that may make plugins concern more shapes."""
        return self.placed_tasks.vocabulary + len(self.taint_sets.values) + len(self._images) + self.devices.rules

    def label(self, key: str) -> LabelColumn:
        """Return one label of all nodes as a column, which is maintained from then on."""
        column = self._label_columns.get(key)
        if column is None:
            column = self._label_columns[key] = LabelColumn(key, self.capacity)
            for row in self.rows.tolist():
                column.write(row, self.nodes[row])
        return column

    def domains(self, key: str) -> tuple[NDArray[np.int32], int]:
        """Return the topology domain of every row, -1 without the label, and the number of domains."""
        column = self.label(key)
        return column.codes, len(column.values)

    def image_was_seen(self, name: str) -> bool:
        """Return whether some node has, or once had, a container image."""
        return self._images.was_seen(name)

    def image_sizes(self, name: str) -> Mapping[int, int]:
        """Return the rows that have a container image, with its size in bytes."""
        return self._images.sizes(name)

    def demand(self, request: Request, uncounted: tuple[int, int] = (0, 0)) -> Demand:
        """Return a request by slot of these columns. Slots that no node has are added to the slot axis."""
        demand = self._demands.get((request, uncounted))
        if demand is None:
            slots = [self.slot(name) for name, _ in request]
            amounts = [amount for _, amount in request]
            by_name = dict(request)
            demand = Demand(
                slots=np.array(slots, dtype=np.intp).reshape(-1, 1),
                names=tuple(name for name, _ in request),
                amounts=np.array(amounts, dtype=np.int64).reshape(-1, 1),
                cpu_and_memory=np.array([[by_name.get("cpu", 0)], [by_name.get("memory", 0)]], dtype=np.int64),
                uncounted=np.array(uncounted, dtype=np.int64).reshape(-1, 1),
                by_slot=tuple(zip(slots, amounts, strict=True)),
            )
            if len(self._demands) >= 4096:
                self._demands.clear()
            self._demands[request, uncounted] = demand
        return demand

    def fits(self, demand: Demand, rows: Rows) -> Mask:
        """Apply the fit rule to every requested slot of every row, as [slot, row].

        It is `taken + request <= allocatable`, written so that no sum exceeds int64.
        """
        return demand.amounts <= self.free(demand, rows)

    def free(self, demand: Demand, rows: Rows) -> Amount:
        """Return the free amount per requested slot, as [slot, row]; negative where a node shrank below its usage."""
        return self.allocatable[demand.slots, rows] - self.taken[demand.slots, rows]

    def fits_on(self, demand: Demand, row: int) -> bool:
        """Return whether a demand fits on one row; for a single row this takes a fraction of the time of `fits`."""
        allocatable, taken = self.allocatable, self.taken
        return all(amount <= allocatable.item(slot, row) - taken.item(slot, row) for slot, amount in demand.by_slot)

    def free_on(self, demand: Demand, row: int) -> list[int]:
        """Return the free amount of one row per requested slot, as `free` does."""
        allocatable, taken = self.allocatable, self.taken
        return [allocatable.item(slot, row) - taken.item(slot, row) for slot, _ in demand.by_slot]

    def slot_of(self, name: str) -> int | None:
        """Return the position of a slot on the slot axis; None if no node and no request named it so far."""
        return self._slot_of.get(name)

    @property
    def slot_names(self) -> tuple[str, ...]:
        """The slots in the order of the slot axis."""
        return tuple(self._slot_of)

    def assume(
        self,
        rows: Rows,
        demand: Demand,
        constraints: Constraints | None = None,
        devices: Sequence[Iterable[DeviceShare]] = (),
        *,
        leaving: bool = False,
    ) -> None:
        """Count one task with this demand (and these constraints) on each of the rows, which must be distinct.

        `devices`: per row the device shares that the task gets.
        """
        self._count(rows, demand, 1)
        self.devices.move(rows, devices, 1)
        if constraints is not None and not leaving:
            self.placed_tasks.add_rows(rows, constraints)
        elif constraints is not None:
            for row in rows.tolist():
                self.placed_tasks.add(row, constraints, leaving=True)
        self.changes.note(rows.tolist())

    def forget(
        self,
        rows: Rows,
        demand: Demand,
        constraints: Constraints | None = None,
        devices: Sequence[Iterable[DeviceShare]] = (),
        *,
        leaving: bool = False,
    ) -> None:
        """Undo one `assume`."""
        self._count(rows, demand, -1)
        self.devices.move(rows, devices, -1)
        if constraints is not None:
            for row in rows.tolist():
                self.placed_tasks.remove(row, constraints, leaving=leaving)
        self.changes.note(rows.tolist())

    @contextmanager
    def without_journal(self) -> Iterator[None]:
        """Keep changes out of the journals. Every change must be undone before the end of the context."""
        journals = self.changes, self.placed_tasks.changes
        self.changes, self.placed_tasks.changes = Journal(), Journal()
        try:
            yield
        finally:
            self.changes, self.placed_tasks.changes = journals

    def count_amounts(self, rows: Sequence[int], requests: Sequence[Amounts], sign: int) -> None:
        """Count (1) or forget (-1) the amounts of tasks, one on each of the rows, which may repeat."""
        entries = [
            (self.slot(name), row, amount)
            for row, request in zip(rows, requests, strict=True)
            for name, amount in request.items()
        ]
        if len(rows) <= _FEW:
            for slot, row, amount in entries:
                self.taken[slot, row] += sign * amount
            for row in rows:
                self.tasks[row] += sign
            self.changes.note(rows)
            return
        if entries:
            slots, at, amounts = np.array(entries, dtype=np.int64).T
            np.add.at(self.taken, (slots, at), sign * amounts)
        np.add.at(self.tasks, np.array(rows, dtype=np.intp), sign)
        self.changes.note(rows)

    def move_footprint(self, row: int, footprint: Footprint, tasks: int, sign: int) -> None:
        """Count (1) or forget (-1) the footprint of tasks on a row: everything but amounts."""
        self.tasks[row] += sign * tasks
        rows: Rows = np.array([row], dtype=np.intp)
        self.devices.move(rows, (footprint.devices,), sign)
        if footprint.constraints is not None:
            change = self.placed_tasks.add if sign > 0 else self.placed_tasks.remove
            change(row, footprint.constraints, tasks, leaving=footprint.leaving)
        self.changes.note((row,))

    def withhold(
        self,
        row: int,
        tasks: int,
        licences: int,
        ports: Iterable[HostPort],
        devices: Iterable[DeviceShare],
        sign: int,
    ) -> None:
        """Withhold (1) or release (-1) parts of a row without counting a placed task."""
        self.tasks[row] += sign * tasks
        self.placed_tasks.withhold(row, licences, ports, sign)
        self.devices.move(np.array([row], dtype=np.intp), (tuple(devices),), sign)
        self.changes.note((row,))

    def set_leaving(self, row: int, constraints: Constraints, leaving: bool) -> None:
        """Mark a task on a row as about to end, or not. It still occupies its resources."""
        self.placed_tasks.remove(row, constraints, leaving=not leaving)
        self.placed_tasks.add(row, constraints, leaving=leaving)
        self.changes.note((row,))

    def with_ports(self, row: int, constraints: Constraints) -> Constraints:
        """Return the constraints of a task on this row, with free ports of its range added as host ports."""
        if not constraints.ports_wanted:
            return constraints
        named = {port.port for port in constraints.host_ports}
        given = self.placed_tasks.lowest_free_ports(row, constraints.ports_wanted, without=named)
        return with_host_ports(constraints, map(HostPort, given))

    def _count(self, rows: Rows, demand: Demand, sign: int) -> None:
        if len(rows) == 1:
            # Scalars take a fraction of the time of index arrays.
            row = int(rows[0])
            for slot, amount in demand.by_slot:
                self.taken[slot, row] += sign * amount
            for slot, [amount] in enumerate(demand.uncounted.tolist()):
                if amount:
                    self.uncounted[slot, row] += sign * amount
            self.tasks[row] += sign
            return
        self.taken[demand.slots, rows] += sign * demand.amounts
        self.uncounted[:, rows] += sign * demand.uncounted
        self.tasks[rows] += sign

    def _write_static(self, row: int, node: Node) -> None:
        self.ready[row] = node.ready
        self.pool[row] = self.pools.code(node.pool)
        self.runtimes[row] = self.runtime_sets.code(node.runtimes)
        self.architecture[row] = self.architectures.code(node.architecture)
        self.region[row] = self.regions.code(node.region)
        self.owner[row] = self.owners.code(node.owner)
        self.isolation[row] = self.isolations.code((node.isolation, node.required_isolation))
        self.cordoned[row] = node.status is NodeStatus.READY and not node.schedulable
        self.taints[row] = self.taint_sets.code(node.taints)
        self.machine_image[row] = self.machine_images.code((node.machine_image, node.machine_image_version))
        self.licence[row] = self.licences.code(node.licence)
        self.sessions_allowed[row] = INT64_MAX if node.sessions_allowed is None else node.sessions_allowed
        first, last = node.port_range
        self.ports_offered[row] = max(last - first + 1, 0)
        self.placed_tasks.set_port_range(row, first, last)
        self.placed_tasks.set_occupied_ports(row, node.occupied_ports)
        for column in self._label_columns.values():
            column.write(row, node)
        self._images.write(row, node.images)

    def _amounts(self, node: Node) -> tuple[Amount, Amount]:
        """Return the allocatable and the taken amounts of a node along the slot axis."""
        slots = {name: self.slot(name) for name in {*node.allocatable, *node.held, *node.reserved, *node.used}}
        allocatable = np.zeros(len(self.allocatable), dtype=np.int64)
        taken = np.zeros(len(self.taken), dtype=np.int64)
        offered = node.allocatable
        if node.pool in self.overcommit:
            offered = overcommitted(offered, self.overcommit[node.pool])
        for name, slot in slots.items():
            allocatable[slot] = offered.get(name, 0)
            # Nothing fits above int64 anyway; saturating keeps one absurd row from failing the rest.
            taken[slot] = min(node.held.get(name, 0) + node.reserved.get(name, 0) + node.used.get(name, 0), INT64_MAX)
        return allocatable, taken

    def _offered_and_taken(self, row: int, name: str) -> tuple[int, int]:
        slot = self.slot(name)
        return int(self.allocatable[slot, row]), int(self.taken[slot, row])

    def _write_counters(self, row: int, node: Node, allocatable: Amount, taken: Amount) -> bool:
        """Write the counters of a node. Return whether any of them changed."""
        max_tasks = INT64_MAX if node.max_tasks is None else node.max_tasks
        uncounted = np.array([node.uncounted.get("cpu", 0), node.uncounted.get("memory", 0)], dtype=np.int64)
        moved = (
            self.tasks[row] != node.tasks
            or not np.array_equal(self.uncounted[:, row], uncounted)
            or self.max_tasks[row] != max_tasks
            or not np.array_equal(self.allocatable[:, row], allocatable)
            or not np.array_equal(self.taken[:, row], taken)
        )
        self.allocatable[:, row] = allocatable
        self.inverse[:, row] = np.divide(1.0, allocatable, out=np.zeros(len(allocatable)), where=allocatable > 0)
        self.taken[:, row] = taken
        self.uncounted[:, row] = uncounted
        self.tasks[row] = node.tasks
        self.max_tasks[row] = max_tasks
        return self._write_load(row, node.cpu_percent, node.memory_percent) or bool(moved)

    def _write_load(self, row: int, cpu_percent: float, memory_percent: float) -> bool:
        cpu, memory = fixed_point_load(cpu_percent), fixed_point_load(memory_percent)
        moved = self.cpu_load[row] != cpu or self.memory_load[row] != memory
        self.cpu_load[row] = cpu
        self.memory_load[row] = memory
        return bool(moved)

    def _take_row(self, node_id: UUID) -> int:
        if not self._unused:
            self._double_rows()
        row = self._unused.pop()
        self._row_of[node_id] = row
        return row

    def _double_rows(self) -> None:
        before = self.capacity
        for name in _ROW_COLUMNS:
            values = getattr(self, name)
            setattr(self, name, np.concatenate((values, np.zeros_like(values)), axis=-1))
        self.pool[before:] = NOBODY
        self.nodes.extend([None] * before)
        self.placed_tasks.grow(2 * before)
        self.devices.grow(2 * before)
        for column in self._label_columns.values():
            column.grow(2 * before)
        self._unused = list(range(2 * before - 1, before - 1, -1))
        self._forget_order()

    def slot(self, name: str) -> int:
        """Return the position of a slot on the slot axis; a new slot is added."""
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._slot_of[name] = len(self._slot_of)
            if slot == len(self.allocatable):
                self.allocatable = np.concatenate((self.allocatable, np.zeros_like(self.allocatable)))
                self.taken = np.concatenate((self.taken, np.zeros_like(self.taken)))
                self.inverse = np.concatenate((self.inverse, np.zeros_like(self.inverse)))
        return slot

    def _forget_order(self) -> None:
        self.membership += 1
        self._rows = None
        self._precedence = None


_ROW_COLUMNS = (
    "allocatable",
    "inverse",
    "taken",
    "uncounted",
    "tasks",
    "max_tasks",
    "ready",
    "cordoned",
    "pool",
    "runtimes",
    "architecture",
    "region",
    "owner",
    "isolation",
    "taints",
    "machine_image",
    "licence",
    "sessions_allowed",
    "ports_offered",
    "cpu_load",
    "memory_load",
)
