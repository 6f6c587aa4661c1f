"""Prefers nodes that are full after the placement (bin packing), up to a target of utilisation if there is one."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.resources import CPU_AND_MEMORY, shares_left
from mooring.scheduling.shapes import Shape


class MostAllocatedScorer:
    """The mean share of processor and memory in use. Beyond `target_percent` it falls again, to 0 for a full node."""

    name = "most_allocated"
    depends_on: DependsOn = "row"

    def __init__(self, weights: tuple[int, int] = (1, 1), target_percent: int = 100) -> None:
        self.weights = weights
        self.target_percent = target_percent

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = shares_used(shape, cluster, rows)
        used: Scores = (self.weights[0] * cpu + self.weights[1] * memory) // sum(self.weights)
        if self.target_percent == 100:
            return used
        target = SCORE_ONE * self.target_percent // 100
        scores: Scores = np.where(
            used <= target, used * SCORE_ONE // target, (SCORE_ONE - used) * SCORE_ONE // (SCORE_ONE - target)
        )
        return scores


def shares_used(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """The shares of processor and memory in use after the placement, as [slot, row]; 0 of what a node lacks."""
    present = cluster.allocatable[CPU_AND_MEMORY, rows] > 0
    used: Scores = np.where(present, SCORE_ONE - shares_left(shape, cluster, rows), 0)
    return used
