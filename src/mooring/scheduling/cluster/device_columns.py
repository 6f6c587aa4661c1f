"""The devices of all nodes as columns: per slot [row, device], the devices of a node in the order of their index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.model.nodes.node import Node
from mooring.model.resources.devices import (
    WHOLE,
    Device,
    DeviceDemand,
    DeviceShare,
)
from mooring.model.resources.slots import BUILT_IN, UNITS_PER_ONE, slot_type
from mooring.scheduling.cluster.device_sharing import UNSUITABLE, Shares
from mooring.scheduling.cluster.typical_requests import FALLBACK, TypicalRequest, check_typical
from mooring.scheduling.cluster.value_codes import Codes

_BY_TYPE = frozenset(slot.name for slot in BUILT_IN if slot.devices)
_WIDTH = 8
"""Initial number of devices per row."""
_MOST_UNNAMED = 64
"""Most devices of a node that lists none: one absurd amount must not widen the columns for all."""
NO_MODELS: Codes[str | None] = Codes((None,))
"""The initial models of a column: that of a device without one."""


class DeviceColumns:
    """The single devices of device slots, and the rules of pools for allocating them."""

    def __init__(self, rows: int) -> None:
        self.columns: dict[str, DeviceColumn] = {}
        """By slot, if some node has devices of it."""
        self.typical: dict[str, tuple[TypicalRequest, ...]] = {}
        """By pool, as set."""
        self.learned: dict[str, tuple[TypicalRequest, ...]] = {}
        """By pool, from the workloads that arrived; used for pools without typical ones."""
        self.rules = 0
        """Incremented when allocation rules change or a new kind of device appears."""
        self.demand_changes = 0
        """Incremented when the typical requests of a pool change."""
        self._fragmented: set[str] = set()
        self._rows = rows

    def fragmentation_allowed(self, pool: str) -> bool:
        return pool in self._fragmented

    def allow_fragmentation(self, pool: str, allowed: bool) -> bool:
        """Return whether this is a change."""
        if allowed == (pool in self._fragmented):
            return False
        self._fragmented ^= {pool}
        self.rules += 1
        return True

    def typical_of(self, pool: str) -> Sequence[TypicalRequest]:
        """Return the typical requests of a pool: as set, else as learned, else the fallback."""
        return self.typical.get(pool) or self.learned.get(pool) or FALLBACK

    def set_typical_requests(self, pool: str, typical: tuple[TypicalRequest, ...]) -> bool:
        """Return whether this is a change."""
        check_typical(typical)
        if typical == self.typical.get(pool, ()):
            return False
        self.typical[pool] = typical
        self.demand_changes += 1
        return True

    def set_learned_requests(self, pool: str, learned: tuple[TypicalRequest, ...]) -> None:
        check_typical(learned)
        self.learned[pool] = learned
        self.demand_changes += 1

    def write(self, row: int, node: Node, offered_and_taken: Callable[[str], tuple[int, int]]) -> bool:
        """Write a node, given its allocatable and taken amounts by slot. Return whether anything changed."""
        for name in (node.devices.keys() | (_BY_TYPE & node.allocatable.keys())) - self.columns.keys():
            self.columns[name] = DeviceColumn(name, self._rows)
            self.rules += 1
        moved = False
        for name, column in self.columns.items():
            kinds = column.kinds
            moved |= column.write(row, node, *offered_and_taken(name))
            self.rules += kinds != column.kinds
        return moved

    def copy_rules(self, other: DeviceColumns) -> None:
        """Copy the allocation rules."""
        self.typical, self.learned = dict(other.typical), dict(other.learned)
        self._fragmented = set(other._fragmented)
        self.rules += 1

    def copy_free(self, row: int, other: DeviceColumns, other_row: int) -> None:
        """Copy the free capacity of the devices of a node that both have."""
        for name, column in self.columns.items():
            theirs = other.columns.get(name)
            if theirs is not None:
                width = min(column.free.shape[1], theirs.free.shape[1])
                column.free[row, :width] = theirs.free[other_row, :width]

    def clear(self, row: int) -> None:
        for column in self.columns.values():
            column.clear(row)

    def grow(self, rows: int) -> None:
        self._rows = rows
        for column in self.columns.values():
            column.grow(rows)

    def move(self, rows: NDArray[np.intp], devices: Sequence[Iterable[DeviceShare]], sign: int) -> None:
        """Take shares of devices from rows (1), or give them back (-1)."""
        for row, shares in zip(rows.tolist(), devices, strict=False):
            for column in self.columns.values():
                column.move(row, shares, sign)


class DeviceColumn:
    """The free capacity of every device of a slot. A device that a row does not have has no capacity."""

    def __init__(self, slot: str, rows: int) -> None:
        self.slot = slot
        self.quantum = slot_type(slot).quantum
        self.models: Codes[str | None] = Codes(NO_MODELS.values)
        self.model_sets: Codes[frozenset[str | None]] = Codes((frozenset({None}),))
        """The sets of models that the devices of a node have."""
        self.models_on: NDArray[np.int64] = np.zeros(rows, dtype=np.int64)
        """[row]: the code of its set of models."""
        self.unequal: set[int] = set()
        """Rows with devices of several models, memories or sizes."""
        self.odd: set[int] = set()
        """Rows with several devices none of which is a whole one, or with a larger one."""
        self._use(np.zeros((5, rows, _WIDTH), dtype=np.int64))

    def _use(self, table: NDArray[np.int64]) -> None:
        self._table = table
        self.free: Shares = table[0]
        """Negative where a device shrank below its usage."""
        self.capacity: Shares = table[1]
        self.index: NDArray[np.int64] = table[2]
        self.memory: NDArray[np.int64] = table[3]
        self.model: NDArray[np.int64] = table[4]
        """The code of the model; 0 if unknown."""

    @property
    def kinds(self) -> tuple[bool, bool, int, int]:
        """The presence of unequal rows and of odd rows, and the numbers of models and of sets of models seen."""
        return bool(self.unequal), bool(self.odd), len(self.models.values), len(self.model_sets.values)

    def write(self, row: int, node: Node, offered: int, taken: int) -> bool:
        """Write the devices of a node. Return whether anything changed."""
        devices = _devices_of(node, self.slot, offered, taken)
        if len(devices) > self._table.shape[2]:
            self._widen(len(devices))
        now = np.zeros((5, self._table.shape[2]), dtype=np.int64)
        if devices:
            code = self.models.code
            now[:, : len(devices)] = np.array(
                [(each.free, each.capacity, each.index, each.memory or 0, code(each.model)) for each in devices]
            ).T
        if np.array_equal(self._table[:, row], now):
            return False
        self._table[:, row] = now
        self.models_on[row] = self.model_sets.code(frozenset({each.model for each in devices} or {None}))
        sizes = {device.capacity for device in devices}
        _note(self.unequal, row, len({(each.model, each.memory, each.capacity) for each in devices}) > 1)
        _note(self.odd, row, max(sizes, default=0) > WHOLE or (len(devices) > 1 and WHOLE not in sizes))
        return True

    def clear(self, row: int) -> None:
        self._table[:, row] = 0
        self.models_on[row] = 0
        self.unequal.discard(row)
        self.odd.discard(row)

    def grow(self, rows: int) -> None:
        self._use(np.pad(self._table, ((0, 0), (0, rows - self._table.shape[1]), (0, 0))))
        self.models_on = np.pad(self.models_on, (0, rows - len(self.models_on)))

    def least(self, demand: DeviceDemand, rows: NDArray[np.intp]) -> Shares:
        """Return the smallest share of every device that satisfies a demand; UNSUITABLE for another model."""
        capacity, memory = self.capacity[rows], self.memory[rows]
        needed = np.zeros_like(capacity)
        if demand.memory > 0:
            requested = min(demand.memory, (1 << 62) // max(int(capacity.max(initial=1)), 1))
            needed = np.where(memory > 0, -(-requested * capacity // np.maximum(memory, 1)), UNSUITABLE)
        if demand.models:
            wanted = [self.models.code(model) for model in demand.models if model in self.models]
            needed = np.where(np.isin(self.model[rows], wanted), needed, UNSUITABLE)
        return needed

    def divided(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return the rows where the slot consists of devices: all by its type, else those whose node lists some."""
        if self.slot in _BY_TYPE:
            return np.ones(len(rows), dtype=np.bool_)
        named: NDArray[np.bool_] = np.logical_or.reduce(self.capacity[rows] > 0, axis=1)
        return named

    def move(self, row: int, shares: Iterable[DeviceShare], sign: int) -> None:
        """Take shares of devices from a row (1), or give them back (-1); a device that has left is ignored."""
        for share in shares:
            if share.slot == self.slot:
                at = (self.index[row] == share.device) & (self.capacity[row] > 0)
                self.free[row, at] -= sign * share.amount

    def named(self, row: int, given: Sequence[tuple[int, int]]) -> tuple[DeviceShare, ...]:
        """Return shares by position as shares by device index."""
        index = self.index[row].tolist()
        return tuple([DeviceShare(self.slot, index[position], amount) for position, amount in given])

    def _widen(self, devices: int) -> None:
        width = self._table.shape[2]
        while width < devices:
            width *= 2
        self._use(np.pad(self._table, ((0, 0), (0, 0), (0, width - self._table.shape[2]))))


def _note(rows: set[int], row: int, belongs: bool) -> None:
    if belongs:
        rows.add(row)
    else:
        rows.discard(row)


def _devices_of(node: Node, slot: str, offered: int, taken: int) -> Sequence[Device]:
    """Return the devices that the node lists, by index.

    Without a list its amount is whole devices numbered from 0, with the remainder as the last one, and the first ones
    are taken.
    """
    named = node.devices.get(slot)
    if named is not None:
        return sorted(named, key=lambda device: device.index)
    if slot not in _BY_TYPE:
        return ()
    one = UNITS_PER_ONE[slot_type(slot).kind]
    devices: list[Device] = []
    for index, start in enumerate(range(0, min(offered, _MOST_UNNAMED * one), one)):
        capacity = min(one, offered - start)
        devices.append(Device(index, capacity, taken=min(max(taken - start, 0), capacity)))
    return devices


def kinds_of_devices(node: Node) -> tuple[object, ...]:
    """Return the devices that a node lists, without their usage."""
    return tuple(
        (slot, device.index, device.capacity, device.model, device.memory)
        for slot, devices in node.devices.items()
        for device in devices
    )
