"""Prefers the least allocated nodes: those with the largest share of processor and memory left after the placement."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import CPU, MEMORY, Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape

CPU_AND_MEMORY = np.array([[CPU], [MEMORY]], dtype=np.intp)


class ResourcesScorer:
    """The mean over both slots of (allocatable - taken - request) / allocatable; a slot that a node lacks gives 0."""

    name = "resources"
    depends_on: DependsOn = "row"

    def __init__(self, weights: tuple[int, int] = (1, 1)) -> None:
        self.weights = weights
        """Of processor and memory."""

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = shares_left(shape, cluster, rows)
        scores: Scores = (self.weights[0] * cpu + self.weights[1] * memory) // sum(self.weights)
        return scores


def shares_left(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """The shares of processor and memory that the placement leaves, as [slot, row]; 0 of what a node lacks."""
    free = np.maximum(cluster.allocatable[CPU_AND_MEMORY, rows] - cluster.taken[CPU_AND_MEMORY, rows], 0)
    left = np.maximum(free - cluster.demand(shape.request).cpu_and_memory, 0)
    shares = np.rint(left.astype(np.float64) * cluster.inverse[CPU_AND_MEMORY, rows] * SCORE_ONE).astype(np.int64)
    clipped: Scores = np.clip(shares, 0, SCORE_ONE)
    return clipped
