"""NodeResourcesBalancedAllocation: the utilisations of the slots should be close to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.fit import requested_of
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT


class KubernetesBalanced:
    """(1 - standard deviation of the utilisations) * 100; a task that requests none of the slots is not scored."""

    name = "kubernetes_balanced"
    depends_on: DependsOn = "row"

    def __init__(self, slots: tuple[str, ...] = ("cpu", "memory")) -> None:
        self.slots = slots

    @property
    def kernel_points(self) -> KernelPoints | None:
        return "balanced" if self.slots == ("cpu", "memory") else None

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        requested_slots = dict(shape.request)
        return any(requested_slots.get(name) for name in self.slots)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        used = np.zeros((len(self.slots), len(rows)), dtype=np.float64)
        present = np.zeros((len(self.slots), len(rows)), dtype=np.bool_)
        for index, name in enumerate(self.slots):
            requested, allocatable = requested_of(shape, cluster, rows, name, counted=False)
            present[index] = allocatable > 0
            used[index] = np.minimum(requested / np.maximum(allocatable, 1), 1.0)
        points = ((1 - _deviation(used, present)) * 100).astype(np.int64)
        return points * ONE_POINT


def _deviation(used: NDArray[np.float64], present: Mask) -> NDArray[np.float64]:
    """Return the standard deviation over the slots that a row has: half the distance of two, 0 for one."""
    numbers = np.maximum(present.sum(axis=0), 1)
    present_use = np.where(present, used, 0.0)
    mean = present_use.sum(axis=0) / numbers
    spread = np.sqrt((np.where(present, used - mean, 0.0) ** 2).sum(axis=0) / numbers)
    largest = np.where(present, used, -1.0).max(axis=0)
    smallest = np.where(present, used, 2.0).min(axis=0)
    # kube-scheduler has the same special case: the square root would round differently.
    deviation = np.where(numbers == 2, np.abs(largest - smallest) / 2, spread)
    return np.where(numbers == 1, 0.0, deviation)
