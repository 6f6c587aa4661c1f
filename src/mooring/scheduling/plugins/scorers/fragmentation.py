"""Keeps what is left of devices useful: prefers the node, and the device, where a task adds least to the fragment.

The fragment of a node is what is left of its devices and cannot be used by a typical request, expected over the typical
requests of the pool (fragmentation gradient descent, Weng et al., ATC 2023). The published score is a sigmoid of the
change. Here it is `change / (one device + change)`, which orders the nodes alike and needs whole numbers only: an
exponential may differ in its last digit between NumPy and compiled code, and with it the decision. Like the published
one it comes in whole points of 100: what differs by less is left to the other scorers and the order of names, which
leaves fewer devices unused than following every thousandth of a mix that is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.devices import WHOLE, DeviceShare
from mooring.scheduling.arrays import Amount, Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.device_requests import DeviceRequest, device_requests
from mooring.scheduling.devices import Shares
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape
from mooring.scheduling.typical import FALLBACK, Typical

SLOT = "gpu"
_HALF = SCORE_ONE // 2
_POINT = SCORE_ONE // 100
_TOO_MUCH = np.iinfo(np.int64).max


class FragmentationScorer:
    """Half of SCORE_ONE where the fragment stays as it is; more where it falls, less where it grows."""

    name = "fragmentation"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        typical = typical_of(shape.pool, cluster)
        before = fragment(typical, cluster, rows)
        after, _ = _after(typical, shape, cluster, rows)
        change = np.abs(before - after)
        part = _HALF * change // (WHOLE * sum(each.weight for each in typical) + change)
        scores: Scores = np.where(after <= before, _HALF + part, _HALF - part) // _POINT * _POINT
        return scores

    def devices_on(self, shape: Shape, cluster: Cluster, row: int) -> tuple[DeviceShare, ...]:
        """The devices that leave the least fragment; of other slots, and where several are needed, the tightest fit."""
        shares: list[DeviceShare] = []
        rows: Rows = np.array([row], dtype=np.intp)
        for request in device_requests(shape, cluster):
            given = request.give(row) if request.column.divided(rows)[0] else None
            if given is not None and len(given) == 1 and request.column.slot == SLOT:
                _, chosen = _after(typical_of(shape.pool, cluster), shape, cluster, rows)
                given = [(int(chosen[0]), request.amount)]
            shares.extend(request.column.named(row, given or ()))
        return tuple(shares)


def typical_of(pool: str, cluster: Cluster) -> Sequence[Typical]:
    return cluster.devices.typical.get(pool) or FALLBACK


def devices_and_share(typical: Typical) -> tuple[int, int]:
    """How many devices a typical request needs, and how much of each."""
    amount = typical.request.get(SLOT, 0)
    devices = -(-amount // WHOLE)
    return devices, -(-amount // devices) if devices else 0


def fragment(
    typical: Sequence[Typical],
    cluster: Cluster,
    rows: Rows,
    *,
    free: Shares | None = None,
    cpu_and_memory: Amount | None = None,
) -> Amount:
    """What each typical request cannot use of the devices of each row, times its weight, summed up.

    All that is left is lost for a request that does not fit, and for one that asks for no device; for others it is what
    is left of the devices with too little. `free`, `cpu_and_memory`: instead of what is left now.
    """
    column = cluster.devices.columns.get(SLOT)
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


def _after(typical: Sequence[Typical], shape: Shape, cluster: Cluster, rows: Rows) -> tuple[Amount, Amount]:
    """The least fragment that a task of the shape leaves on each row where it fits, and on which device if on one."""
    demand = cluster.demand(shape.request)
    cpu_and_memory = _cpu_and_memory(cluster, rows) - demand.cpu_and_memory
    request = next((each for each in device_requests(shape, cluster) if each.column.slot == SLOT), None)
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
    """The devices that can take the whole request, as [row, device]."""
    suffices = request.column.free[rows] >= request.amount
    least = request.least(rows)
    return suffices if least is None else suffices & (least <= request.amount)


def _cpu_and_memory(cluster: Cluster, rows: Rows) -> Amount:
    left: Amount = cluster.allocatable[:2, rows] - cluster.taken[:2, rows]
    return left
