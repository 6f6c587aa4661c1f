"""NodeResourcesBalancedAllocation: the used shares of the slots should be close to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.arrays import Mask, Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.kubernetes.fit import requested_of
from mooring.scheduling.scorers.kubernetes.points import ONE_POINT
from mooring.scheduling.shapes import Shape


class KubernetesBalanced:
    """(1 - standard deviation of the used shares) * 100; a task that asks for none of the slots is not scored."""

    name = "kubernetes_balanced"
    depends_on: DependsOn = "row"

    def __init__(self, slots: tuple[str, ...] = ("cpu", "memory")) -> None:
        self.slots = slots

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        asked = dict(shape.request)
        return any(asked.get(name) for name in self.slots)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        used = np.zeros((len(self.slots), len(rows)), dtype=np.float64)
        present = np.zeros((len(self.slots), len(rows)), dtype=np.bool_)
        for place, name in enumerate(self.slots):
            requested, allocatable = requested_of(shape, cluster, rows, name, counted=False)
            present[place] = allocatable > 0
            used[place] = np.minimum(requested / np.maximum(allocatable, 1), 1.0)
        points = ((1 - _deviation(used, present)) * 100).astype(np.int64)
        return points * ONE_POINT


def _deviation(used: NDArray[np.float64], present: Mask) -> NDArray[np.float64]:
    """The standard deviation over the slots that a row has; of two it is half their distance, of one it is 0."""
    numbers = np.maximum(present.sum(axis=0), 1)
    kept = np.where(present, used, 0.0)
    mean = kept.sum(axis=0) / numbers
    spread = np.sqrt((np.where(present, used - mean, 0.0) ** 2).sum(axis=0) / numbers)
    largest = np.where(present, used, -1.0).max(axis=0)
    smallest = np.where(present, used, 2.0).min(axis=0)
    # Two are special in the model, too: the square root would round differently.
    deviation = np.where(numbers == 2, np.abs(largest - smallest) / 2, spread)
    return np.where(numbers == 1, 0.0, deviation)
