"""Evictions chosen by all requests that then fit on the node: one large task may leave capacity for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mooring.model.policy.defragmentation import PlacedTask
from mooring.model.resources.devices import WHOLE
from mooring.model.resources.slots import Amounts
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.defragmentation.wanted import Wanted

_MOST_LEAVING = 3
"""The maximum number of tasks that leave one node together."""


class Filling(NamedTuple):
    """Tasks to evict from a node, and the gain of the requests that then fit there, by amounts and devices alone."""

    leaving: list[PlacedTask]
    gain: float


def best_filling(
    cluster: Cluster, row: int, tasks: Sequence[PlacedTask], wanted: Sequence[Wanted], most: int
) -> Filling | None:
    """Return the evictions with the highest gain per task; None if none gains anything. Gangs are left out.

    `tasks`: those of the row that fit elsewhere. `wanted`: requests that the row may take, in the order of their fill.
    """
    single = [each for each in wanted if each.least == 1 and each.left]
    if not single:
        return None
    node = _Node(cluster, row, single)
    best: Filling | None = None
    leaving: list[PlacedTask] = []
    left = list(tasks)
    while left and len(leaving) < min(_MOST_LEAVING, most):
        gains = [(node.gain([*leaving, task]), task) for task in left]
        gain, task = max(gains, key=lambda each: (each[0], -each[1].lost_seconds, each[1].task_id.int))
        left.remove(task)
        leaving.append(task)
        if gain > 0 and (best is None or gain / len(leaving) > best.gain / len(best.leaving)):
            best = Filling(list(leaving), gain)
    return best


def fill_of(cluster: Cluster, row: int, wanted: Sequence[Wanted]) -> list[int]:
    """Return the positions of requests that fit on a row together, one for each task, by amounts and devices alone.

    As many as fit start, the smallest first. Then larger requests of the same gain take their place as far as the node
    has capacity: the small ones still fit on nodes that have little left.
    """
    return _Node(cluster, row, wanted).chosen()


class _Node:
    """The free amounts and devices of a row."""

    def __init__(self, cluster: Cluster, row: int, wanted: Sequence[Wanted]) -> None:
        self._wanted = [
            (at, each.sample.request, each.value, each.left) for at, each in enumerate(wanted) if each.least == 1
        ]
        self._free: dict[str, int] = {}
        self._devices: dict[str, list[tuple[int, int]]] = {}
        for slot in {slot for _, request, _, _ in self._wanted for slot, amount in request.items() if amount}:
            at = cluster.slot_of(slot)
            self._free[slot] = 0 if at is None else int(cluster.allocatable[at, row] - cluster.taken[at, row])
            column = cluster.devices.columns.get(slot)
            if column is None:
                continue
            devices = zip(
                column.index[row].tolist(), column.free[row].tolist(), column.capacity[row].tolist(), strict=True
            )
            if listed := [(index, free) for index, free, capacity in devices if capacity]:
                self._devices[slot] = listed

    def gain(self, leaving: Sequence[PlacedTask]) -> float:
        """Return the gain of the requests that fit once these tasks have left."""
        free, devices = self._without(leaving)
        gained = 0.0
        for _, request, value, count in self._wanted:
            for _ in range(count):
                if not _take(request, free, devices):
                    break
                gained += value
        return gained

    def chosen(self) -> list[int]:
        """Return the positions of the requests that fill the node now."""
        free, devices = self._without(())
        taken: list[int] = []
        left: dict[int, int] = {}
        for at, request, _, count in self._wanted:
            left[at] = count
            while left[at] and _take(request, free, devices):
                left[at] -= 1
                taken.append(at)
        known = {at: (request, value) for at, request, value, _ in self._wanted}
        for position, at in enumerate(taken):
            for other in reversed(known):
                if other > at and left[other] and self._is_larger(*known[other], *known[at], free):
                    for slot, amount in known[other][0].items():
                        free[slot] -= amount - known[at][0].get(slot, 0)
                    left[other] -= 1
                    left[at] += 1
                    taken[position] = other
                    break
        return taken

    def _is_larger(self, larger: Amounts, gain: float, request: Amounts, value: float, free: Amounts) -> bool:
        """Return whether a request of the same gain and devices fits in the place of another one."""
        if gain != value or any(larger.get(slot, 0) != request.get(slot, 0) for slot in self._devices):
            return False
        return all(amount - request.get(slot, 0) <= free.get(slot, 0) for slot, amount in larger.items() if amount)

    def _without(self, leaving: Sequence[PlacedTask]) -> tuple[dict[str, int], dict[str, list[int]]]:
        """Return the free amounts, and those of devices in ascending order, once these tasks have left."""
        free = dict(self._free)
        devices = {slot: dict(listed) for slot, listed in self._devices.items()}
        for task in leaving:
            for slot, amount in task.workload.request.items():
                if slot in free:
                    free[slot] += amount
            for share in task.devices:
                if share.slot in devices:
                    devices[share.slot][share.device] = devices[share.slot].get(share.device, 0) + share.amount
        return free, {slot: sorted(each.values()) for slot, each in devices.items()}


def _take(request: Amounts, free: dict[str, int], devices: dict[str, list[int]]) -> bool:
    """Take a request from the free amounts and devices. Return False, with nothing taken, if it does not fit."""
    if any(amount > free[slot] for slot, amount in request.items() if amount):
        return False
    after: dict[str, list[int]] = {}
    for slot, amount in request.items():
        if not amount or slot not in devices:
            continue
        left = _without(devices[slot], *divmod(amount, WHOLE))
        if left is None:
            return False
        after[slot] = left
    for slot, amount in request.items():
        if amount:
            free[slot] -= amount
    devices.update(after)
    return True


def _without(devices: list[int], whole: int, share: int) -> list[int] | None:
    """Return ascending free amounts of devices without whole ones and the fullest that takes a share."""
    if whole:
        if len(devices) < whole or devices[-whole] < WHOLE:
            return None
        devices = devices[:-whole]
    if share:
        at = next((at for at, left in enumerate(devices) if left >= share), None)
        if at is None:
            return None
        devices = sorted((*devices[:at], devices[at] - share, *devices[at + 1 :]))
    return devices
