"""Prefers the least allocated nodes: those with the largest fraction of CPU and memory free after the placement."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.columns import CPU, MEMORY
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn

CPU_AND_MEMORY = np.array([[CPU], [MEMORY]], dtype=np.intp)


class ResourcesScorer:
    """The mean over both slots of (allocatable - taken - request) / allocatable; a slot that a node lacks gives 0."""

    name = "resources"
    depends_on: DependsOn = "row"

    def __init__(self, weights: tuple[int, int] = (1, 1)) -> None:
        self.weights = weights
        """Of CPU and memory."""

    @property
    def kernel_formula(self) -> KernelFormula | None:
        return KernelFormula("least_allocated", self.weights)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = free_fractions(shape, cluster, rows)
        scores: Scores = (self.weights[0] * cpu + self.weights[1] * memory) // sum(self.weights)
        return scores


def free_fractions(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """Return the fractions of CPU and memory free after the placement, as [slot, row]; 0 if a node lacks the slot."""
    if len(rows) == 1:
        return _free_fractions_on(shape, cluster, rows.item(0))
    free = np.maximum(cluster.allocatable[CPU_AND_MEMORY, rows] - cluster.taken[CPU_AND_MEMORY, rows], 0)
    left = np.maximum(free - cluster.demand(shape.request).cpu_and_memory, 0)
    shares = np.rint(left.astype(np.float64) * cluster.inverse[CPU_AND_MEMORY, rows] * SCORE_ONE).astype(np.int64)
    at_most_one: Scores = np.minimum(shares, SCORE_ONE)
    return at_most_one


def _free_fractions_on(shape: Shape, cluster: Cluster, row: int) -> Scores:
    """Return the same for one row: for a single number an array operation costs far more than the calculation."""
    request, shares = cluster.demand(shape.request).cpu_and_memory, []
    for slot in (CPU, MEMORY):
        free = max(cluster.allocatable.item(slot, row) - cluster.taken.item(slot, row), 0)
        left = max(free - request.item(slot, 0), 0)
        shares.append([min(round(float(left) * cluster.inverse.item(slot, row) * SCORE_ONE), SCORE_ONE)])
    return np.array(shares, dtype=np.int64)
