"""Prefers devices in use over free ones, and nodes in use over free ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.device_requests import device_requests
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn

_POINT = SCORE_ONE // 100


class DevicePackingScorer:
    """The mean of the points over the device slots that the task requests."""

    name = "device_packing"
    depends_on: DependsOn = "row"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(device_requests(shape, cluster))

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        requests = device_requests(shape, cluster)
        scores = np.zeros(len(rows), dtype=np.int64)
        for request in requests:
            column = request.column
            for number, row in enumerate(rows.tolist()):
                given = request.give(row) or ()
                free, capacity = column.free[row].tolist(), column.capacity[row].tolist()
                scores[number] += packing_points(free, capacity, [device for device, _ in given]) * _POINT
        return scores // max(len(requests), 1)


def packing_points(free: Sequence[int], capacity: Sequence[int], chosen: Iterable[int]) -> int:
    """Return points from 0 to 100: nearly full shared devices, then free devices of a node in use, then a free node."""
    taken = list(chosen)
    if not taken:
        return 0
    present = [device for device, size in enumerate(capacity) if size > 0]
    untouched = [device for device in taken if free[device] == capacity[device]]
    if not untouched:
        return max(100 - sum(free[device] * 100 // capacity[device] for device in taken) // 10, 50)
    if all(free[device] == capacity[device] for device in present):
        return max(33 - len(present), len(present))
    return max(50 - len(untouched), 33)
