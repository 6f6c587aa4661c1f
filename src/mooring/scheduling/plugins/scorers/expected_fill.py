"""Prefers the node, and the device, where a task takes least from the device capacity that work to come would fill.

The score falls with the value that the node loses (`expected_fill.node_value`) and with the prices of the capacity
that the task takes (`expected_fill.prices`), per device for a task that wants several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.resources.devices import WHOLE, DeviceShare
from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.device_requests import DeviceRequest, device_requests
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.expected_fill.pools import PoolFill
from mooring.scheduling.expected_fill.prices import Prices, placement_cost
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn

NO_COST = SCORE_ONE - 50_000
"""The score of a placement that takes nothing from others. A node may even gain a little value."""
MOST_GAIN = SCORE_ONE // 2
"""A node that gains more counts as gaining this, so that the kernels can keep a loss in few bits."""


class _Option(NamedTuple):
    """A placement on one device, or on the only devices possible: the value of the node afterwards."""

    value: int
    device: int
    """Its position; -1 for several devices or none."""
    wholes: int
    """The number of devices that stay wholly free."""


class ExpectedFillScorer:
    """NO_COST less the points that a placement costs."""

    name = "expected_fill"
    depends_on: DependsOn = "cluster"
    kernel_formula = KernelFormula("expected_fill")

    def portions(self, workloads: Sequence[Workload], cluster: Cluster) -> Iterator[Sequence[Workload]]:
        return cluster.expected_fill.portions(workloads)

    def begin_workload(self, pool: str, cluster: Cluster) -> None:
        cluster.expected_fill.count_workload(pool)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        fill = cluster.expected_fill.of(shape.pool)
        column = cluster.devices.columns.get(DEVICE_SLOT)
        if column is None:
            return np.full(len(rows), NO_COST, dtype=np.int64)
        request, current = _request(shape, cluster), cluster.expected_fill.prices_of(fill)
        classes = fill.classes[column.models_on[rows]].tolist()
        before, after = _free_cpu(shape, cluster, rows)
        devices = np.maximum(column.free[rows], 0).tolist()
        usable = None if request is None else _usable(request, rows).tolist()
        known: dict[tuple[object, ...], int] = {}
        scores = np.empty(len(rows), dtype=np.int64)
        for at, row in enumerate(rows.tolist()):
            fits = None if usable is None else tuple(usable[at])
            alone = row if row in column.unequal else None
            key = (classes[at], before[at], after[at], tuple(devices[at]), fits, alone)
            score = known.get(key)
            if score is None:
                option = _best(fill, current, request, row, classes[at], after[at], devices[at], fits)
                score = known[key] = _score(fill, current, request, option, classes[at], before[at], devices[at])
            scores[at] = score
        return scores

    def devices_on(self, shape: Shape, cluster: Cluster, row: int) -> tuple[DeviceShare, ...]:
        """Return the device that leaves the node the most value; the tightest fit for other slots and for several."""
        shares: list[DeviceShare] = []
        rows: Rows = np.array([row], dtype=np.intp)
        for request in device_requests(shape, cluster):
            given = request.give(row) if request.column.divided(rows)[0] else None
            if given is not None and len(given) == 1 and request.column.slot == DEVICE_SLOT:
                given = [(_device(request, shape, cluster, rows), request.amount)]
            shares.extend(request.column.named(row, given or ()))
        return tuple(shares)


def _request(shape: Shape, cluster: Cluster) -> DeviceRequest | None:
    return next((each for each in device_requests(shape, cluster) if each.column.slot == DEVICE_SLOT), None)


def _device(request: DeviceRequest, shape: Shape, cluster: Cluster, rows: Rows) -> int:
    fill, row = cluster.expected_fill.of(shape.pool), int(rows[0])
    of_class = int(fill.classes[request.column.models_on[row]])
    _, after = _free_cpu(shape, cluster, rows)
    devices = np.maximum(request.column.free[row], 0).tolist()
    usable = tuple(_usable(request, rows)[0].tolist())
    option = _best(fill, cluster.expected_fill.prices_of(fill), request, row, of_class, after[0], devices, usable)
    return option.device


def _free_cpu(shape: Shape, cluster: Cluster, rows: Rows) -> tuple[list[int], list[int]]:
    """Return the free CPU per row, before and after the placement."""
    free = cluster.allocatable[0, rows] - cluster.taken[0, rows]
    wanted = int(cluster.demand(shape.request).cpu_and_memory[0, 0])
    return np.maximum(free, 0).tolist(), np.maximum(free - wanted, 0).tolist()


def _usable(request: DeviceRequest, rows: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return the devices that can take the whole request, as [row, device]."""
    suffices = request.column.free[rows] >= request.amount
    least = request.least(rows)
    return suffices if least is None else suffices & (least <= request.amount)


def _best(
    fill: PoolFill,
    current: Prices,
    request: DeviceRequest | None,
    row: int,
    of_class: int,
    after: int,
    devices: list[int],
    usable: tuple[bool, ...] | None,
) -> _Option:
    """Return the placement that leaves the node the most value: among equals on the tightest device, then the first."""

    def option(left: list[int], device: int) -> _Option:
        value = fill.values.value(current.cpu_level, of_class, after, tuple(sorted(left)))
        return _Option(value, device, sum(part >= WHOLE for part in left))

    if request is None or usable is None:
        return option(devices, -1)
    options: dict[int, _Option] = {}
    for device, (part, fits) in enumerate(zip(devices, usable, strict=True)):
        if fits and part not in options:
            options[part] = option([*devices[:device], part - request.amount, *devices[device + 1 :]], device)
    if options:
        return options[min(options, key=lambda part: (-options[part].value, part))]
    left = list(devices)
    for device, share in request.give(row) or ():
        left[device] -= share
    return option(left, -1)


def _score(
    fill: PoolFill,
    current: Prices,
    request: DeviceRequest | None,
    option: _Option,
    of_class: int,
    before: int,
    devices: list[int],
) -> int:
    amount = 0 if request is None else request.amount
    value = fill.values.value(current.cpu_level, of_class, before, tuple(sorted(devices)))
    loss = min(max((value - option.value) // max(amount // WHOLE, 1), -MOST_GAIN), NO_COST)
    wholes = sum(part >= WHOLE for part in devices)
    cost = loss + placement_cost(fill.demand, current, of_class, amount, wholes, option.wholes)
    return min(max(NO_COST - cost, 0), SCORE_ONE)
