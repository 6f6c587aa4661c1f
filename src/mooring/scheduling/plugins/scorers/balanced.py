"""Prefers nodes where the placement leaves CPU and memory in the same proportion."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.resources import free_fractions


class BalancedScorer:
    name = "balanced"
    depends_on: DependsOn = "row"
    kernel_formula = KernelFormula("balanced")

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = free_fractions(shape, cluster, rows)
        scores: Scores = SCORE_ONE - np.abs(cpu - memory)
        return scores
