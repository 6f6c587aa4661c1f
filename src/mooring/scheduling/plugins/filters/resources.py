"""Only nodes where every requested slot fits: held + reserved + used + request <= allocatable."""

from __future__ import annotations

import numpy as np

from mooring.model.resources.quantity import format_decimal
from mooring.model.resources.slots import Amounts, slot_type
from mooring.scheduling.cluster.arrays import Demand, Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFilter
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, OwnChange, TaskChange


class ResourcesFilter:
    """Slots in `ignored` are not checked. An entry is a name, or the part of a name before the slash."""

    name = "resources"
    depends_on: DependsOn = "row"

    def __init__(self, ignored: frozenset[str] = frozenset()) -> None:
        self.ignored = ignored

    @property
    def kernel_filter(self) -> KernelFilter | None:
        return None if self.ignored else "resources"

    def demand(self, shape: Shape, cluster: Cluster) -> Demand:
        """Return the part of a request that is checked."""
        if not self.ignored:
            return cluster.demand(shape.request)
        checked = ((name, amount) for name, amount in shape.request if self.ignored.isdisjoint(_names(name)))
        return cluster.demand(tuple(checked))

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        every_slot: Mask = np.logical_and.reduce(cluster.fits(self.demand(shape, cluster), rows), axis=0)
        return every_slot

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        """Return the rejection. Each node counts for one slot: the one that most of the remaining nodes lack."""
        demand = self.demand(shape, cluster)
        remaining = cluster.free(demand, rows)
        free = np.maximum(remaining, 0)
        lacks = demand.amounts > remaining
        fits_when_empty = demand.amounts <= cluster.allocatable[demand.slots, rows]
        words: list[str] = []
        lacking: dict[str, dict[str, int]] = {}
        left = np.ones(len(rows), dtype=np.bool_)
        while left.any():
            slot = int(np.argmax((lacks & left).sum(axis=1)))
            here = lacks[slot] & left
            left &= ~here
            name = demand.names[slot]
            needs = int(demand.amounts[slot, 0])
            most_free = int(free[slot, here].max())
            largest = int(cluster.allocatable[demand.slots[slot, 0], rows[here]].max())
            count = int(here.sum())
            words.append(_words(name, count, needs, most_free, largest))
            lacking[name] = {"nodes": count, "needs": needs, "most_free": most_free, "largest": largest}
        return Rejection(
            "insufficient-resources",
            ", ".join(words),
            cure="release" if fits_when_empty.all(axis=0).any() else "change",
            details={"lacking": lacking},
        )

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        before, after = change.before, change.after
        return after is not None and (before is None or self._any_less(shape, before.allocatable, after.allocatable))

    def cured_by_task(self, shape: Shape, cluster: Cluster, change: TaskChange) -> bool:
        before, after = change.before, change.after
        return before is not None and (after is None or self._any_less(shape, after.request, before.request))

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        before, after = change.before.request, change.after.request
        return any(after.get(name, 0) < units for name, units in before.items())

    def _any_less(self, shape: Shape, these: Amounts, those: Amounts) -> bool:
        """Return whether these amounts have less than those of a slot that the shape requests."""
        return any(
            amount and self.ignored.isdisjoint(_names(name)) and these.get(name, 0) < those.get(name, 0)
            for name, amount in shape.request
        )


def _names(slot: str) -> tuple[str, str]:
    return slot, slot.partition("/")[0]


def _words(name: str, count: int, needs: int, most_free: int, largest: int) -> str:
    lack = "lacks" if count == 1 else "lack"
    shown = {units: _readable(name, units) for units in (needs, most_free, largest)}
    if len(set(shown.values())) < len(shown):
        shown = {units: slot_type(name).format(units) for units in shown}
    empty = f", {shown[largest]} when empty" if most_free < largest < needs else ""
    return f"{count:,} {lack} {shown[needs]} {name} (best has {shown[most_free]}{empty})"


def _readable(name: str, units: int) -> str:
    """Format an amount. Bytes without an exact suffix are rounded down to a tenth of the suffix."""
    slot = slot_type(name)
    exact = slot.format(units)
    if slot.kind != "bytes" or len(exact) <= 6:
        return exact
    power = (units.bit_length() - 1) // 10
    suffix = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")[power]
    return f"{format_decimal(units * 10 >> 10 * power, 10)}{suffix}"
