"""The columnar cluster: one row per node, one array per property, so that a question to all nodes is one operation.

Rows are reused and their order means nothing: where nodes tie, the lowest name wins (`precedence`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from mooring.model.decisions import SCORE_ONE
from mooring.model.nodes import Node
from mooring.model.quantity import INT64_MAX
from mooring.scheduling.journal import Journal

Rows: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]
Scores: TypeAlias = NDArray[np.int64]
Amount: TypeAlias = NDArray[np.int64]

Request: TypeAlias = tuple[tuple[str, int], ...]
"""Slot names with amounts in base units, sorted by name."""

Value = TypeVar("Value", bound=Hashable)

CPU, MEMORY = 0, 1
"""The slots that every cluster knows, at fixed places of the slot axis."""

NOBODY = -1
"""The code in `pool` of a row that holds no node."""


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """A request in the cluster's terms. All arrays stand upright, (n, 1), and so broadcast over rows."""

    slots: NDArray[np.intp]
    names: tuple[str, ...]
    amounts: Amount
    cpu_and_memory: Amount


class Codes(Generic[Value]):
    """Small numbers for values that repeat: a column holds the number, a question is asked once per value."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._code_of: dict[Value, int] = {}

    def code(self, value: Value) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code

    def __contains__(self, value: Value) -> bool:
        return value in self._code_of


class Cluster:
    """All nodes as columns. Two-dimensional columns are [slot, row]; a slot that a node lacks is 0 there.

    `changes` notes every row whose answer may differ, `static_changes` those of them where more than counters moved.
    """

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.changes = Journal()
        self.static_changes = Journal()
        self.membership = 0
        """Raised when a node comes, goes or is renamed: the precedence of others may have moved."""

        self.pools: Codes[str] = Codes()
        self.runtime_sets: Codes[frozenset[str]] = Codes()
        self.architectures: Codes[str] = Codes()
        self.regions: Codes[str | None] = Codes()
        self.owners: Codes[UUID | None] = Codes()

        capacity = 64
        self.allocatable: Amount = np.zeros((4, capacity), dtype=np.int64)
        self.taken: Amount = np.zeros((4, capacity), dtype=np.int64)
        """held + reserved + used, and what the pass assumes."""
        self.tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.max_tasks: Amount = np.zeros(capacity, dtype=np.int64)
        self.ready: Mask = np.zeros(capacity, dtype=np.bool_)
        self.pool: Amount = np.full(capacity, NOBODY, dtype=np.int64)
        self.runtimes: Amount = np.zeros(capacity, dtype=np.int64)
        self.architecture: Amount = np.zeros(capacity, dtype=np.int64)
        self.region: Amount = np.zeros(capacity, dtype=np.int64)
        self.owner: Amount = np.zeros(capacity, dtype=np.int64)
        self.cpu_load: Amount = np.zeros(capacity, dtype=np.int64)
        self.memory_load: Amount = np.zeros(capacity, dtype=np.int64)
        """Measured load in fixed point: SCORE_ONE is 100 percent."""
        self.nodes: list[Node | None] = [None] * capacity
        """The nodes as they were last told; for what has no column (labels, names). Counters are in the columns."""

        self._slot_of: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        self._row_of: dict[UUID, int] = {}
        self._unused = list(range(capacity - 1, -1, -1))
        self._demands: dict[Request, Demand] = {}
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

    def upsert(self, node: Node) -> None:
        """Take over a node as the store has it; counters that a pass assumed on it are overwritten."""
        allocatable, taken = self._amounts(node)
        row = self._row_of.get(node.id)
        before = self.nodes[row] if row is not None else None
        if row is None:
            row = self._take_row(node.id)
        counters_moved = self._write_counters(row, node, allocatable, taken)
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
        self.taken[:, row] = 0
        self.tasks[row] = 0
        self._unused.append(row)
        self._forget_order()
        self.static_changes.note((row,))
        self.changes.note((row,))

    def set_load(self, node_id: UUID, cpu_percent: float, memory_percent: float) -> None:
        """The measured load of a node, 0..100 percent; an unknown node is no error, since it may just have left."""
        row = self._row_of.get(node_id)
        if row is not None and self._write_load(row, cpu_percent, memory_percent):
            self.changes.note((row,))

    def demand(self, request: Request) -> Demand:
        """A request in the terms of these columns; a slot that no node offers gets its place here."""
        demand = self._demands.get(request)
        if demand is None:
            slots = [self._slot(name) for name, _ in request]
            amounts = [amount for _, amount in request]
            by_name = dict(request)
            demand = Demand(
                slots=np.array(slots, dtype=np.intp).reshape(-1, 1),
                names=tuple(name for name, _ in request),
                amounts=np.array(amounts, dtype=np.int64).reshape(-1, 1),
                cpu_and_memory=np.array([[by_name.get("cpu", 0)], [by_name.get("memory", 0)]], dtype=np.int64),
            )
            if len(self._demands) >= 4096:
                self._demands.clear()
            self._demands[request] = demand
        return demand

    def fits(self, demand: Demand, rows: Rows) -> Mask:
        """The one fit rule for every requested slot of every row, as [slot, row].

        It is `taken + request <= allocatable` written so that no sum can leave int64.
        """
        return demand.amounts <= self.free(demand, rows)

    def free(self, demand: Demand, rows: Rows) -> Amount:
        """What is left of every requested slot, as [slot, row]; negative where a node shrank below what it carries."""
        return self.allocatable[demand.slots, rows] - self.taken[demand.slots, rows]

    def assume(self, rows: Rows, demand: Demand) -> None:
        """Count one task with this demand on each of the rows, which must be distinct."""
        self.taken[demand.slots, rows] += demand.amounts
        self.tasks[rows] += 1
        self.changes.note(rows.tolist())

    def forget(self, rows: Rows, demand: Demand) -> None:
        """Undo one `assume`."""
        self.taken[demand.slots, rows] -= demand.amounts
        self.tasks[rows] -= 1
        self.changes.note(rows.tolist())

    def _write_static(self, row: int, node: Node) -> None:
        self.ready[row] = node.ready
        self.pool[row] = self.pools.code(node.pool)
        self.runtimes[row] = self.runtime_sets.code(node.runtimes)
        self.architecture[row] = self.architectures.code(node.architecture)
        self.region[row] = self.regions.code(node.region)
        self.owner[row] = self.owners.code(node.owner)

    def _amounts(self, node: Node) -> tuple[Amount, Amount]:
        """What a node offers and what is taken of it, along the slot axis."""
        slots = {name: self._slot(name) for name in {*node.allocatable, *node.held, *node.reserved, *node.used}}
        allocatable = np.zeros(len(self.allocatable), dtype=np.int64)
        taken = np.zeros(len(self.taken), dtype=np.int64)
        for name, slot in slots.items():
            allocatable[slot] = node.allocatable.get(name, 0)
            # Beyond int64 nothing fits either way; saturating keeps one absurd row from stopping the rest.
            taken[slot] = min(node.held.get(name, 0) + node.reserved.get(name, 0) + node.used.get(name, 0), INT64_MAX)
        return allocatable, taken

    def _write_counters(self, row: int, node: Node, allocatable: Amount, taken: Amount) -> bool:
        """The counters of a node; answers whether any of them moved."""
        max_tasks = INT64_MAX if node.max_tasks is None else node.max_tasks
        moved = (
            self.tasks[row] != node.tasks
            or self.max_tasks[row] != max_tasks
            or not np.array_equal(self.allocatable[:, row], allocatable)
            or not np.array_equal(self.taken[:, row], taken)
        )
        self.allocatable[:, row] = allocatable
        self.taken[:, row] = taken
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
            column = getattr(self, name)
            setattr(self, name, np.concatenate((column, np.zeros_like(column)), axis=-1))
        self.pool[before:] = NOBODY
        self.nodes.extend([None] * before)
        self._unused = list(range(2 * before - 1, before - 1, -1))
        self._forget_order()

    def _slot(self, name: str) -> int:
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._slot_of[name] = len(self._slot_of)
            if slot == len(self.allocatable):
                self.allocatable = np.concatenate((self.allocatable, np.zeros_like(self.allocatable)))
                self.taken = np.concatenate((self.taken, np.zeros_like(self.taken)))
        return slot

    def _forget_order(self) -> None:
        self.membership += 1
        self._rows = None
        self._precedence = None


_ROW_COLUMNS = (
    "allocatable",
    "taken",
    "tasks",
    "max_tasks",
    "ready",
    "pool",
    "runtimes",
    "architecture",
    "region",
    "owner",
    "cpu_load",
    "memory_load",
)


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
    )


def _fixed_point(percent: float) -> int:
    """A measured percentage as a share of SCORE_ONE; what is none (not a number, beyond 100) counts as full."""
    if not 0 <= percent <= 100:
        return 0 if percent < 0 else SCORE_ONE
    return round(percent * (SCORE_ONE // 100))
