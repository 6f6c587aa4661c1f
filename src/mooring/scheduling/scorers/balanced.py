"""Prefers nodes where the placement leaves processor and memory in the same proportion."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.resources import shares_left
from mooring.scheduling.shapes import Shape


class BalancedScorer:
    name = "balanced"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        cpu, memory = shares_left(shape, cluster, rows)
        scores: Scores = SCORE_ONE - np.abs(cpu - memory)
        return scores
