"""The lab score of the session schedulers before Mooring: the fullest node wins, and many sessions add a little."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.resources import CPU_AND_MEMORY
from mooring.scheduling.shapes import Shape

LARGEST = 1_050_000
"""What a full node with five sessions or more is worth, in millionths."""


class LabScorer:
    """(processor utilisation + memory utilisation) / 2 + min(0.05, 0.01 x sessions), before the placement."""

    name = "lab"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        taken = np.minimum(cluster.taken[CPU_AND_MEMORY, rows], cluster.allocatable[CPU_AND_MEMORY, rows])
        used = np.rint(taken.astype(np.float64) * cluster.inverse[CPU_AND_MEMORY, rows] * 1_000_000).astype(np.int64)
        scores: Scores = lab_value(used[0], used[1], cluster.tasks[rows]) * SCORE_ONE // LARGEST
        return scores


def lab_value(cpu: Scores, memory: Scores, sessions: Scores) -> Scores:
    """The score in millionths, of utilisations in millionths."""
    value: Scores = (cpu + memory) // 2 + np.minimum(50_000, 10_000 * sessions)
    return value
