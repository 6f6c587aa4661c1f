"""The tasks that have to leave a node so that a request fits there: few of them, those that cost the least."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mooring.model.policy.defragmentation import PlacedTask
from mooring.model.resources.devices import WHOLE
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster_state import Cluster

_NODES = 160
"""The nodes that are searched for one request."""


def evictions(
    cluster: Cluster, row: int, request: Mapping[str, int], tasks: Sequence[PlacedTask], most: int
) -> list[PlacedTask] | None:
    """Return at most `most` movable tasks whose amounts and devices make a request fit on a row; None if none do.

    Other filters decide on a trial. An empty list: the request lacks neither amounts nor devices.
    """
    search = _Search(cluster, row, request, [task for task in tasks if task.movable])
    while not search.fits():
        best = search.best()
        if best is None or len(search.chosen) >= most:
            return None
        search.evict(best)
    # Earlier choices may have become unnecessary.
    for task in tuple(search.chosen):
        search.restore(task)
        if not search.fits():
            search.evict(task)
    return search.chosen


def nearest(cluster: Cluster, sample: Workload, may: Rows, among: Sequence[int], most: int = _NODES) -> list[int]:
    """Return those of the rows `may` and `among` that lack the least for a request, at most `most`."""
    if len(among) == 1:
        return list(among) if among[0] in may else []
    rows: Rows = np.intersect1d(may, np.array(among, dtype=np.intp))
    lacking = np.zeros(len(rows))
    for slot, amount in sample.request.items():
        at = cluster.slot_of(slot)
        if not amount or at is None:
            continue
        free = cluster.allocatable[at, rows] - cluster.taken[at, rows]
        lacking += np.maximum(amount - free, 0) / amount
        column = cluster.devices.columns.get(slot)
        if column is not None:
            whole = max(amount // WHOLE, 1)
            usable = (column.free[rows] >= min(amount, WHOLE)).sum(axis=1)
            lacking += np.maximum(whole - usable, 0) / whole
        lacking[cluster.allocatable[at, rows] < amount] = np.inf
    order = np.argsort(lacking, kind="stable")
    found: list[int] = rows[order[np.isfinite(lacking[order])]][:most].tolist()
    return found


class _Search:
    def __init__(self, cluster: Cluster, row: int, request: Mapping[str, int], tasks: Sequence[PlacedTask]) -> None:
        self.chosen: list[PlacedTask] = []
        self._left = list(tasks)
        self._lacking: dict[str, int] = {}
        for slot, amount in request.items():
            at = cluster.slot_of(slot)
            free = 0 if at is None else int(cluster.allocatable[at, row] - cluster.taken[at, row])
            self._lacking[slot] = amount - free
        self._devices: dict[str, tuple[int, dict[int, int]]] = {}
        """By device slot: the request, and the free amount by the index of a device."""
        for slot, amount in request.items():
            column = cluster.devices.columns.get(slot)
            if column is None or not amount:
                continue
            devices = zip(
                column.index[row].tolist(), column.free[row].tolist(), column.capacity[row].tolist(), strict=True
            )
            by_index = {index: left for index, left, capacity in devices if capacity}
            if by_index:
                self._devices[slot] = amount, by_index

    def fits(self) -> bool:
        if any(lacking > 0 for lacking in self._lacking.values()):
            return False
        return all(_lacking_devices(amount, free.values()) == 0 for amount, free in self._devices.values())

    def best(self) -> PlacedTask | None:
        """Return the task whose departure contributes most, and among equals costs least."""
        best: tuple[float, int, int] | None = None
        found: PlacedTask | None = None
        for task in self._left:
            contribution = self._contribution(task)
            if contribution <= 0:
                continue
            key = (-contribution, task.lost_seconds, task.task_id.int)
            if best is None or key < best:
                best, found = key, task
        return found

    def evict(self, task: PlacedTask) -> None:
        self._left.remove(task)
        self.chosen.append(task)
        self._change(task, 1)

    def restore(self, task: PlacedTask) -> None:
        self.chosen.remove(task)
        self._left.append(task)
        self._change(task, -1)

    def _change(self, task: PlacedTask, sign: int) -> None:
        for slot in self._lacking:
            self._lacking[slot] -= sign * task.workload.request.get(slot, 0)
        for share in task.devices:
            if share.slot in self._devices:
                free = self._devices[share.slot][1]
                free[share.device] = free.get(share.device, 0) + sign * share.amount

    def _contribution(self, task: PlacedTask) -> float:
        """Return how much of the lacking amounts and devices a task frees, as a sum of fractions."""
        request = task.workload.request
        total = sum(
            min(request.get(slot, 0), lacking) / lacking for slot, lacking in self._lacking.items() if lacking > 0
        )
        for slot, (amount, free) in self._devices.items():
            before = _lacking_devices(amount, free.values())
            if before <= 0:
                continue
            after = dict(free)
            partly = 0.0
            for share in task.devices:
                if share.slot == slot:
                    after[share.device] = after.get(share.device, 0) + share.amount
                    # A device that others use as well is closer to being free.
                    partly += after[share.device] / (WHOLE * 1000)
            total += (before - _lacking_devices(amount, after.values())) / before * 2 + partly
        return total


def _lacking_devices(amount: int, free: Collection[int]) -> int:
    """Return the number of devices that a request lacks: whole ones, and one with the remainder."""
    whole, share = divmod(amount, WHOLE)
    entire = sum(left >= WHOLE for left in free)
    lacking = max(whole - entire, 0)
    if share and not lacking and entire == whole:
        lacking = int(sum(left >= share for left in free) <= whole)
    return lacking
