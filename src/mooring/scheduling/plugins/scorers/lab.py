"""The lab score: the fullest node wins, and many sessions add a little."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.resources import CPU_AND_MEMORY

LARGEST = 1_050_000
"""The score of a full node with five sessions or more, in millionths."""


class LabScorer:
    """(CPU utilisation + memory utilisation) / 2 + min(0.05, 0.01 x sessions), before the placement."""

    name = "lab"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        taken = np.minimum(cluster.taken[CPU_AND_MEMORY, rows], cluster.allocatable[CPU_AND_MEMORY, rows])
        used = np.rint(taken.astype(np.float64) * cluster.inverse[CPU_AND_MEMORY, rows] * 1_000_000).astype(np.int64)
        scores: Scores = lab_value(used[0], used[1], cluster.tasks[rows]) * SCORE_ONE // LARGEST
        return scores


def lab_value(cpu: Scores, memory: Scores, sessions: Scores) -> Scores:
    """Return the score in millionths for utilisations in millionths."""
    value: Scores = (cpu + memory) // 2 + np.minimum(50_000, 10_000 * sessions)
    return value
