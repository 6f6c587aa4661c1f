"""Prefers the node, and the device, where a task adds least to the fragmentation of devices.

The fragmentation of a node is the free device capacity that a typical request of the pool cannot use, in expectation
over these requests (fragmentation gradient descent, Weng et al., ATC 2023). The published score is a sigmoid of the
change. Here it is `change / (one device + change)`, which orders the nodes alike and needs whole numbers only: an
exponential may differ in its last digit between NumPy and compiled code, and with it the decision. Like the published
score it has whole points of 100. Smaller differences are left to the other scorers and the order of names, which leaves
fewer devices unused than following every thousandth of an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.resources.devices import WHOLE, DeviceShare
from mooring.scheduling.cluster.arrays import Amount, Rows, Scores
from mooring.scheduling.cluster.device_requests import DeviceRequest, device_requests
from mooring.scheduling.cluster.device_sharing import Shares
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.typical_requests import DEVICE_SLOT, TypicalRequest, devices_and_share
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn

_HALF = SCORE_ONE // 2
_POINT = SCORE_ONE // 100
_TOO_MUCH = np.iinfo(np.int64).max


class FragmentationScorer:
    """Half of SCORE_ONE where the fragmentation stays as it is; more where it falls, less where it grows."""

    name = "fragmentation"
    depends_on: DependsOn = "row"
    kernel_formula = KernelFormula("fragmentation")

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        typical = cluster.devices.typical_of(shape.pool)
        before = fragment(typical, cluster, rows)
        after, _ = _after(typical, shape, cluster, rows)
        change = np.abs(before - after)
        part = _HALF * change // (WHOLE * sum(each.weight for each in typical) + change)
        scores: Scores = np.where(after <= before, _HALF + part, _HALF - part) // _POINT * _POINT
        return scores

    def devices_on(self, shape: Shape, cluster: Cluster, row: int) -> tuple[DeviceShare, ...]:
        """Return the devices with the lowest fragmentation; the tightest fit for other slots and several devices."""
        shares: list[DeviceShare] = []
        rows: Rows = np.array([row], dtype=np.intp)
        for request in device_requests(shape, cluster):
            given = request.give(row) if request.column.divided(rows)[0] else None
            if given is not None and len(given) == 1 and request.column.slot == DEVICE_SLOT:
                _, chosen = _after(cluster.devices.typical_of(shape.pool), shape, cluster, rows)
                given = [(int(chosen[0]), request.amount)]
            shares.extend(request.column.named(row, given or ()))
        return tuple(shares)


def fragment(
    typical: Sequence[TypicalRequest],
    cluster: Cluster,
    rows: Rows,
    *,
    free: Shares | None = None,
    cpu_and_memory: Amount | None = None,
) -> Amount:
    """Return the free device capacity per row that typical requests cannot use, weighted and summed.

    For a request that does not fit, or requests no device, that is all free capacity; for others it is the capacity of
    the devices that have too little free. `free`, `cpu_and_memory`: in place of the present free amounts.
    """
    column = cluster.devices.columns.get(DEVICE_SLOT)
    result = np.zeros(len(rows), dtype=np.int64)
    if column is None:
        return result
    left = np.maximum(column.free[rows] if free is None else free, 0)
    cpu, memory = _cpu_and_memory(cluster, rows) if cpu_and_memory is None else cpu_and_memory
    total = left.sum(axis=1)
    for each in typical:
        devices, share = devices_and_share(each)
        enough = left >= share
        if each.models:
            codes = [column.models.code(model) for model in each.models if model in column.models]
            enough &= np.isin(column.model[rows], codes)
        usable = (
            (cpu >= each.request.get("cpu", 0))
            & (memory >= each.request.get("memory", 0))
            & (enough.sum(axis=1) >= max(devices, 1))
            & (devices > 0)
        )
        result += each.weight * np.where(usable, np.where(enough, 0, left).sum(axis=1), total)
    return result


def _after(typical: Sequence[TypicalRequest], shape: Shape, cluster: Cluster, rows: Rows) -> tuple[Amount, Amount]:
    """Return the lowest fragmentation per row after placing a task, and the device if it needs one."""
    demand = cluster.demand(shape.request)
    cpu_and_memory = _cpu_and_memory(cluster, rows) - demand.cpu_and_memory
    request = next((each for each in device_requests(shape, cluster) if each.column.slot == DEVICE_SLOT), None)
    least = np.full(len(rows), _TOO_MUCH)
    chosen = np.zeros(len(rows), dtype=np.int64)
    if request is None:
        return fragment(typical, cluster, rows, cpu_and_memory=cpu_and_memory), chosen
    free, usable = request.column.free[rows], _holds_all(request, rows)
    for device in np.flatnonzero(usable.any(axis=0)).tolist():
        at = np.flatnonzero(usable[:, device])
        left = free[at]
        left[:, device] -= request.amount
        result = fragment(typical, cluster, rows[at], free=left, cpu_and_memory=cpu_and_memory[:, at])
        better = result < least[at]
        least[at[better]] = result[better]
        chosen[at[better]] = device
    split = np.flatnonzero(least == _TOO_MUCH)
    if len(split):
        left = free[split]
        for number, row in enumerate(rows[split].tolist()):
            for device, share in request.give(row) or ():
                left[number, device] -= share
        least[split] = fragment(typical, cluster, rows[split], free=left, cpu_and_memory=cpu_and_memory[:, split])
    return least, chosen


def _holds_all(request: DeviceRequest, rows: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return the devices that can take the whole request, as [row, device]."""
    suffices = request.column.free[rows] >= request.amount
    least = request.least(rows)
    return suffices if least is None else suffices & (least <= request.amount)


def _cpu_and_memory(cluster: Cluster, rows: Rows) -> Amount:
    left: Amount = cluster.allocatable[:2, rows] - cluster.taken[:2, rows]
    return left
