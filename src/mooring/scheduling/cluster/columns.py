"""The columnar cluster: one row per node, one array per property, so that a question to all nodes is one operation.

Rows are reused and their order means nothing: where nodes tie, the lowest name wins (`precedence`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mooring.model.constraints import NODE_NAME_FIELD, Constraints, HostPort, Taint
from mooring.model.decisions import SCORE_ONE
from mooring.model.devices import DeviceShare
from mooring.model.images import comparable
from mooring.model.lifecycle import NodeStatus
from mooring.model.nodes import Node
from mooring.model.quantity import INT64_MAX
from mooring.model.resources import check_overcommit, overcommitted
from mooring.model.slots import Amounts
from mooring.scheduling.arrays import Amount, Demand, Mask, Rows, Scores
from mooring.scheduling.codes import Codes, LabelColumn
from mooring.scheduling.device_columns import Devices, kinds_of_devices
from mooring.scheduling.journal import Journal
from mooring.scheduling.placed import Placed
from mooring.scheduling.timeline import Timeline
from mooring.scheduling.timeslots import Timeslots
from mooring.scheduling.typical import Typical

Request: TypeAlias = tuple[tuple[str, int], ...]
"""Slot names with amounts in base units, sorted by name."""

CPU, MEMORY = 0, 1
"""The slots that every cluster knows, at fixed places of the slot axis."""

NODE_NAME = NODE_NAME_FIELD
"""The name of the node where a label's key is expected: every node is a domain of its own."""

NOBODY = -1
"""The code in `pool` of a row that holds no node."""


class Cluster:
    """All nodes as columns. Two-dimensional columns are [slot, row]; a slot that a node lacks is 0 there.

    `changes` notes every row whose answer may differ, `static_changes` those of them where more than counters moved.
    """

    def __init__(
        self, nodes: Iterable[Node] = (), *, overcommit: Mapping[str, Mapping[str, Fraction]] | None = None
    ) -> None:
        """`overcommit`: per pool how many times over a compressible slot may be promised."""
        self.overcommit = dict(overcommit or {})
        for ratios in self.overcommit.values():
            check_overcommit(ratios)
        self.changes = Journal()
        self.static_changes = Journal()
        self.membership = 0
        """Raised when a node comes, goes or is renamed: the precedence of others may have moved."""

        self.pools: Codes[str] = Codes()
        self.runtime_sets: Codes[frozenset[str]] = Codes()
        self.architectures: Codes[str] = Codes()
        self.regions: Codes[str | None] = Codes()
        self.owners: Codes[UUID | None] = Codes()
        self.taint_sets: Codes[tuple[Taint, ...]] = Codes()
        self.machine_images: Codes[tuple[str | None, str]] = Codes()
        self.licences: Codes[str | None] = Codes()

        capacity = 64
        self.allocatable: Amount = np.zeros((4, capacity), dtype=np.int64)
        self.taken: Amount = np.zeros((4, capacity), dtype=np.int64)
        """held + reserved + used, and what the pass assumes."""
        self.inverse: NDArray[np.float64] = np.zeros((4, capacity), dtype=np.float64)
        """1 / allocatable, 0 where there is nothing."""
        self.uncounted: Amount = np.zeros((2, capacity), dtype=np.int64)
        """What scoring adds to the taken processor and memory for containers that asked for none."""
        self.tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.max_tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.ready: Mask = np.zeros(capacity, dtype=np.bool_)
        self.cordoned: Mask = np.zeros(capacity, dtype=np.bool_)
        """Alive, but closed for new tasks."""
        self.pool: Amount = np.full(capacity, NOBODY, dtype=np.int64)
        self.runtimes: Amount = np.zeros(capacity, dtype=np.int64)
        self.architecture: Amount = np.zeros(capacity, dtype=np.int64)
        self.region: Amount = np.zeros(capacity, dtype=np.int64)
        self.owner: Amount = np.zeros(capacity, dtype=np.int64)
        self.taints: Amount = np.zeros(capacity, dtype=np.int64)
        self.machine_image: Amount = np.zeros(capacity, dtype=np.int64)
        self.licence: Amount = np.zeros(capacity, dtype=np.int64)
        self.sessions_allowed: Amount = np.zeros(capacity, dtype=np.int64)
        self.ports_offered: Amount = np.zeros(capacity, dtype=np.int64)
        self.cpu_load: Amount = np.zeros(capacity, dtype=np.int64)
        self.memory_load: Amount = np.zeros(capacity, dtype=np.int64)
        """Measured load in fixed point: SCORE_ONE is 100 percent."""
        self.nodes: list[Node | None] = [None] * capacity
        """The nodes as they were last told; for what has no column (labels, names). Counters are in the columns."""

        self.placed = Placed(capacity)
        """The tasks on the nodes, as far as other tasks may ask about them."""
        self.devices = Devices(capacity)
        """The single devices behind slots, and how they are given out."""
        self.timeline = Timeline(self)
        """How what is taken changes in the time ahead."""
        self.timeslots = Timeslots(self)
        """What timeslots have left for their own work."""
        self._label_columns: dict[str, LabelColumn] = {}
        self._images: dict[str, dict[int, int]] = {}
        self._slot_of: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        self._row_of: dict[UUID, int] = {}
        self._unused = list(range(capacity - 1, -1, -1))
        self._demands: dict[tuple[Request, tuple[int, int]], Demand] = {}
        self._rows: Rows | None = None
        self._precedence: Scores | None = None
        for node in nodes:
            self.upsert(node)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def capacity(self) -> int:
        """How many rows the columns have, in use or not."""
        return len(self.nodes)

    @property
    def rows(self) -> Rows:
        """The rows that hold a node."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.pool != NOBODY)
        return self._rows

    @property
    def precedence(self) -> Scores:
        """Who wins among equals: highest for the lowest name, distinct, below `capacity`; 0 for unused rows."""
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
        """What all nodes of a pool have together."""
        totals = self.allocatable[:, self.rows_of_pool(pool)].sum(axis=1).tolist()
        return dict(zip(self.slot_names, totals, strict=False))

    def upsert(self, node: Node) -> None:
        """Take over a node as the store has it; counters that a pass assumed on it are overwritten.

        When what runs there is expected to end is told anew after that (`tell_ends`).
        """
        allocatable, taken = self._amounts(node)
        row = self._row_of.get(node.id)
        before = self.nodes[row] if row is not None else None
        if row is None:
            row = self._take_row(node.id)
        counters_moved = self._write_counters(row, node, allocatable, taken)
        self.timeline.tell(row, {})
        counters_moved |= self.devices.write(row, node, partial(self._offered_and_taken, row))
        if before is None or _static(before) != _static(node):
            self._write_static(row, node)
            self.static_changes.note((row,))
            self.changes.note((row,))
        elif counters_moved:
            self.changes.note((row,))
        if before is None or before.name != node.name:
            self._forget_order()
        self.nodes[row] = node

    def remove(self, node_id: UUID) -> None:
        """Forget a node; one that is not known is no error. Its row is cleared, since plugins may sum over columns."""
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
        self.placed.clear(row)
        self.devices.clear(row)
        self.timeline.clear(row)
        for column in self._label_columns.values():
            column.write(row, None)
        for rows in self._images.values():
            rows.pop(row, None)
        self._unused.append(row)
        self._forget_order()
        self.static_changes.note((row,))
        self.changes.note((row,))

    def set_load(self, node_id: UUID, cpu_percent: float, memory_percent: float) -> None:
        """The measured load of a node, 0..100 percent; an unknown node is no error, since it may just have left."""
        row = self._row_of.get(node_id)
        if row is not None and self._write_load(row, cpu_percent, memory_percent):
            self.changes.note((row,))

    def tell_tasks(
        self,
        node_id: UUID,
        tasks: Iterable[tuple[Constraints, int]],
        *,
        leaving: Iterable[tuple[Constraints, int]] = (),
    ) -> None:
        """What runs on a node, as the store has it; what a pass assumed there is overwritten.

        Each entry is the constraints of tasks that are alike and their number. `leaving` ones are about to end.
        """
        row = self._row_of.get(node_id)
        if row is None:
            return
        self.placed.clear(row)
        for constraints, count in tasks:
            self.placed.add(row, constraints, count)
        for constraints, count in leaving:
            self.placed.add(row, constraints, count, leaving=True)
        self.changes.note((row,))

    def tell_ends(
        self,
        node_id: UUID,
        ends: Mapping[UUID, tuple[int, Amounts]],
        guessed: Mapping[UUID, tuple[int, Amounts]] | None = None,
    ) -> None:
        """When tasks on a node end at the latest, in seconds, and what they occupy; others have an open end.

        `guessed`: when they will have ended, as such tasks usually do.
        """
        row = self._row_of.get(node_id)
        if row is not None:
            self.timeline.tell(row, ends, guessed or {})

    def label_project(self, project: str, labels: Mapping[str, str]) -> None:
        """The labels of a project, by which affinity terms may select it."""
        self.placed.label_project(project, labels)
        self.changes.note(self.rows.tolist())

    def allow_fragmentation(self, pool: str, allowed: bool = True) -> None:
        """Whether a request that fits on as few devices as can hold it nowhere may be split over more, in a pool."""
        if self.devices.allow_fragmentation(pool, allowed):
            self.changes.note(self.rows_of_pool(pool).tolist())

    def tell_typical(self, pool: str, typical: Iterable[Typical]) -> None:
        """What is typically asked for in a pool, so that what is left of its devices stays useful for that."""
        if self.devices.tell_typical(pool, tuple(typical)):
            self.changes.note(self.rows_of_pool(pool).tolist())

    @property
    def vocabulary(self) -> int:
        """Raised when something appears that may concern shapes which nothing of that kind concerned before."""
        return self.placed.vocabulary + len(self.taint_sets.values) + len(self._images) + self.devices.rules

    def label(self, key: str) -> LabelColumn:
        """One label of all nodes as a column, kept from the first question on."""
        column = self._label_columns.get(key)
        if column is None:
            column = self._label_columns[key] = LabelColumn(key, self.capacity)
            for row in self.rows.tolist():
                column.write(row, self.nodes[row])
        return column

    def domains(self, key: str) -> tuple[NDArray[np.int32], int]:
        """The topology domain of every row, -1 where the label is absent, and how many domains there may be."""
        column = self.label(key)
        return column.codes, len(column.values)

    def image_was_seen(self, name: str) -> bool:
        """Whether some node has, or once had, a container image."""
        return comparable(name) in self._images

    def image_sizes(self, name: str) -> Mapping[int, int]:
        """The rows that have a container image, each with its size in bytes."""
        return self._images.get(comparable(name), {})

    def demand(self, request: Request, uncounted: tuple[int, int] = (0, 0)) -> Demand:
        """A request in the terms of these columns; a slot that no node offers gets its place here."""
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
            )
            if len(self._demands) >= 4096:
                self._demands.clear()
            self._demands[request, uncounted] = demand
        return demand

    def fits(self, demand: Demand, rows: Rows) -> Mask:
        """The one fit rule for every requested slot of every row, as [slot, row].

        It is `taken + request <= allocatable` written so that no sum can leave int64.
        """
        return demand.amounts <= self.free(demand, rows)

    def free(self, demand: Demand, rows: Rows) -> Amount:
        """What is left of every requested slot, as [slot, row]; negative where a node shrank below what it carries."""
        return self.allocatable[demand.slots, rows] - self.taken[demand.slots, rows]

    def slot_of(self, name: str) -> int | None:
        """The place of a slot on the slot axis; None if no node and no request named it so far."""
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

        `devices`: per row what the task is given of the node's devices.
        """
        self._count(rows, demand, 1)
        self.devices.move(rows, devices, 1)
        if constraints is not None:
            for row in rows.tolist():
                self.placed.add(row, constraints, leaving=leaving)
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
                self.placed.remove(row, constraints, leaving=leaving)
        self.changes.note(rows.tolist())

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """What is changed in here is undone in here: nobody has to look at it again."""
        journals = self.changes, self.placed.changes
        self.changes, self.placed.changes = Journal(), Journal()
        try:
            yield
        finally:
            self.changes, self.placed.changes = journals

    def shift(self, rows: Sequence[int], requests: Sequence[Amounts], sign: int) -> None:
        """Count (1) or forget (-1) what tasks occupy, one on each of the rows, which may repeat."""
        entries = [
            (self.slot(name), row, amount)
            for row, request in zip(rows, requests, strict=True)
            for name, amount in request.items()
        ]
        if entries:
            slots, at, amounts = np.array(entries, dtype=np.int64).T
            np.add.at(self.taken, (slots, at), sign * amounts)
        np.add.at(self.tasks, np.array(rows, dtype=np.intp), sign)
        self.changes.note(rows)

    def set_leaving(self, row: int, constraints: Constraints, leaving: bool) -> None:
        """A task on a row is about to end (or is not, after all): it still occupies what it has."""
        self.placed.remove(row, constraints, leaving=not leaving)
        self.placed.add(row, constraints, leaving=leaving)
        self.changes.note((row,))

    def with_ports(self, row: int, constraints: Constraints) -> Constraints:
        """The constraints of a task on this row with the ports that it wants from the range as host ports."""
        if not constraints.ports_wanted:
            return constraints
        named = {port.port for port in constraints.host_ports}
        given = self.placed.lowest_free_ports(row, constraints.ports_wanted, without=named)
        return with_host_ports(constraints, map(HostPort, given))

    def _count(self, rows: Rows, demand: Demand, sign: int) -> None:
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
        self.cordoned[row] = node.status is NodeStatus.READY and not node.schedulable
        self.taints[row] = self.taint_sets.code(node.taints)
        self.machine_image[row] = self.machine_images.code((node.machine_image, node.machine_image_version))
        self.licence[row] = self.licences.code(node.licence)
        self.sessions_allowed[row] = INT64_MAX if node.sessions_allowed is None else node.sessions_allowed
        first, last = node.port_range
        self.ports_offered[row] = max(last - first + 1, 0)
        self.placed.set_port_range(row, first, last)
        for column in self._label_columns.values():
            column.write(row, node)
        before = self.nodes[row]
        for name in () if before is None else before.images:
            self._images[comparable(name)].pop(row, None)
        for name, size in node.images.items():
            self._images.setdefault(comparable(name), {})[row] = size

    def _amounts(self, node: Node) -> tuple[Amount, Amount]:
        """What a node offers and what is taken of it, along the slot axis."""
        slots = {name: self.slot(name) for name in {*node.allocatable, *node.held, *node.reserved, *node.used}}
        allocatable = np.zeros(len(self.allocatable), dtype=np.int64)
        taken = np.zeros(len(self.taken), dtype=np.int64)
        offered = node.allocatable
        if node.pool in self.overcommit:
            offered = overcommitted(offered, self.overcommit[node.pool])
        for name, slot in slots.items():
            allocatable[slot] = offered.get(name, 0)
            # Beyond int64 nothing fits either way; saturating keeps one absurd row from stopping the rest.
            taken[slot] = min(node.held.get(name, 0) + node.reserved.get(name, 0) + node.used.get(name, 0), INT64_MAX)
        return allocatable, taken

    def _offered_and_taken(self, row: int, name: str) -> tuple[int, int]:
        slot = self.slot(name)
        return int(self.allocatable[slot, row]), int(self.taken[slot, row])

    def _write_counters(self, row: int, node: Node, allocatable: Amount, taken: Amount) -> bool:
        """The counters of a node; answers whether any of them moved."""
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
        cpu, memory = _fixed_point(cpu_percent), _fixed_point(memory_percent)
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
        self.placed.grow(2 * before)
        self.devices.grow(2 * before)
        self.timeline.grow(2 * before)
        for column in self._label_columns.values():
            column.grow(2 * before)
        self._unused = list(range(2 * before - 1, before - 1, -1))
        self._forget_order()

    def slot(self, name: str) -> int:
        """The place of a slot on the slot axis, a new one if it has none."""
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
    "taints",
    "machine_image",
    "licence",
    "sessions_allowed",
    "ports_offered",
    "cpu_load",
    "memory_load",
)


def with_host_ports(constraints: Constraints, given: Iterable[HostPort]) -> Constraints:
    """The constraints of a task that was given ports of its node's range, told with or without those that it named."""
    given = tuple(port for port in given if port not in constraints.host_ports)
    return replace(constraints, host_ports=(*constraints.host_ports, *given), ports_wanted=0) if given else constraints


def _static(node: Node) -> tuple[object, ...]:
    """What static answers may depend on. The generation alone would do if every user of the library raised it."""
    return (
        node.generation,
        node.name,
        node.ready,
        node.pool,
        node.runtimes,
        node.architecture,
        node.region,
        node.owner,
        node.labels,
        node.status,
        node.taints,
        node.images,
        node.machine_image,
        node.machine_image_version,
        node.licence,
        node.sessions_allowed,
        node.port_range,
        kinds_of_devices(node),
    )


def _fixed_point(percent: float) -> int:
    """A measured percentage as a share of SCORE_ONE; what is none (not a number, beyond 100) counts as full."""
    if not 0 <= percent <= 100:
        return 0 if percent < 0 else SCORE_ONE
    return round(percent * (SCORE_ONE // 100))
