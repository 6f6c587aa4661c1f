"""The capacity that a plan is to make: requests of pending work, of typical work, of one large gang, or empty nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mooring.model.policy.defragmentation import Gain
from mooring.model.resources.devices import WHOLE
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT, TypicalRequest
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.gang_size import gang_size

_ENDLESS = 1 << 20
_MAX_REQUESTS = 48
"""The number of different requests that are considered; those for the most devices come first."""
_SAMPLED = 256
"""The number of typical requests that stand for the work to come."""


class Waiting(NamedTuple):
    """Tasks of a pending workload."""

    workload: Workload
    tasks: int


@dataclass(slots=True)
class Wanted:
    """Requests of one shape that lack capacity."""

    sample: Workload
    """One task of it."""
    value: float
    """The gain of one task."""
    waiting: list[Waiting]
    least: int = 1
    """The tasks that start together or not at all."""
    typical: bool = False

    @property
    def left(self) -> int:
        return sum(each.tasks for each in self.waiting)

    def take(self) -> Workload:
        """Take the next task and return its workload."""
        first = self.waiting[0]
        if first.tasks == 1:
            self.waiting.pop(0)
        else:
            self.waiting[0] = first._replace(tasks=first.tasks - 1)
        return first.workload


def wanted_of(gain: Gain, cluster: Cluster, pool: str, pending: Sequence[Workload]) -> list[Wanted]:
    """Return the requests that moves shall serve, those for the most devices first; none to empty nodes."""
    match gain:
        case Gain.DRAIN_NODES:
            return []
        case Gain.LARGEST_GANG:
            sample = _largest(cluster, pool, pending)
            return [] if sample is None else [Wanted(sample, 1.0, [Waiting(sample, _ENDLESS)], typical=True)]
        case Gain.GPU:
            found = _of_pending(pending)
            return found or _of_typical(cluster, pool)


def devices_of(workload: Workload) -> float:
    """Return the devices that one task requests."""
    return workload.request.get(DEVICE_SLOT, 0) / WHOLE


def _of_pending(pending: Iterable[Workload]) -> list[Wanted]:
    gangs: list[Wanted] = []
    alone: dict[object, Wanted] = {}
    for workload in pending:
        value = devices_of(workload)
        if not value or workload.booking is not None or not workload.tasks:
            continue
        count, least = len(workload.tasks), gang_size(workload)
        one = replace(workload, tasks=workload.tasks[:1])
        if workload.parallel is not None:
            count = min(count, max(workload.parallel - sum(workload.occupied.values()), 0))
        if not count:
            continue
        if least > 1:
            gangs.append(Wanted(one, value, [Waiting(one, least)], least))
            continue
        key = tuple(sorted(workload.request.items())), workload.constraints, workload.runtime, workload.architecture
        known = alone.setdefault(key, Wanted(one, value, []))
        known.waiting.append(Waiting(one, count))
    found = [*gangs, *alone.values()]
    found.sort(key=lambda each: -each.value * each.least)
    return found[:_MAX_REQUESTS]


def _of_typical(cluster: Cluster, pool: str) -> list[Wanted]:
    """Return typical requests in proportion to their weights, for all devices that are free."""
    typical = [each for each in cluster.devices.typical_of(pool) if each.weight and each.request.get(DEVICE_SLOT)]
    weight = sum(each.weight for each in typical)
    at = cluster.slot_of(DEVICE_SLOT)
    if not weight or at is None:
        return []
    rows = cluster.rows_of_pool(pool)
    free = int(np.maximum(cluster.allocatable[at, rows] - cluster.taken[at, rows], 0).sum())
    mean = sum(each.weight * each.request[DEVICE_SLOT] for each in typical) / weight
    number = min(int(free / mean) + 1, _SAMPLED)
    counts = Counter({at: round(each.weight * number / weight) for at, each in enumerate(typical)})
    found: list[Wanted] = []
    for at, count in counts.items():
        if count:
            sample = _as_workload(typical[at], pool)
            found.append(Wanted(sample, devices_of(sample), [Waiting(sample, count)], typical=True))
    found.sort(key=lambda each: -each.value)
    return found[:_MAX_REQUESTS]


def _as_workload(typical: TypicalRequest, pool: str) -> Workload:
    devices = typical.request[DEVICE_SLOT] / WHOLE
    return Workload(name=f"typical request for {devices:g} GPU", pool=pool, request=dict(typical.request))


def _largest(cluster: Cluster, pool: str, pending: Sequence[Workload]) -> Workload | None:
    """Return one task of the pending workload with the most devices per task; else all devices of the usual node."""
    asking = [each for each in pending if devices_of(each) and each.booking is None and each.tasks]
    if asking:
        first = max(asking, key=lambda each: (devices_of(each), len(each.tasks)))
        return replace(first, tasks=first.tasks[:1], gang=False, min_tasks=None)
    at = cluster.slot_of(DEVICE_SLOT)
    if at is None:
        return None
    sizes = Counter(amount for amount in cluster.allocatable[at, cluster.rows_of_pool(pool)].tolist() if amount)
    if not sizes:
        return None
    usual = max(sizes, key=lambda size: (sizes[size] * size, size))
    return Workload(name=f"gang of {usual / WHOLE:g} GPU per task", pool=pool, request={DEVICE_SLOT: usual})
