"""Prefers nodes that are full after the placement (bin packing), up to a target utilisation if there is one."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.resources import CPU_AND_MEMORY, free_fractions


class MostAllocatedScorer:
    """The mean utilisation of CPU and memory. Above `target_percent` the score falls, to 0 for a full node."""

    name = "most_allocated"
    depends_on: DependsOn = "row"

    def __init__(self, weights: tuple[int, int] = (1, 1), target_percent: int = 100) -> None:
        self.weights = weights
        self.target_percent = target_percent

    @property
    def kernel_formula(self) -> KernelFormula | None:
        return KernelFormula("most_allocated", self.weights) if self.target_percent == 100 else None

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = utilisation(shape, cluster, rows)
        used: Scores = (self.weights[0] * cpu + self.weights[1] * memory) // sum(self.weights)
        if self.target_percent == 100:
            return used
        target = SCORE_ONE * self.target_percent // 100
        scores: Scores = np.where(
            used <= target, used * SCORE_ONE // target, (SCORE_ONE - used) * SCORE_ONE // (SCORE_ONE - target)
        )
        return scores


def utilisation(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """Return the utilisation of CPU and memory after the placement, as [slot, row]; 0 for a slot that a node lacks."""
    present = cluster.allocatable[CPU_AND_MEMORY, rows] > 0
    used: Scores = np.where(present, SCORE_ONE - free_fractions(shape, cluster, rows), 0)
    return used
