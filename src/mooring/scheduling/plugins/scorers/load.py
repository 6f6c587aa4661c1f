"""Prefers nodes with a low measured load: half CPU, half memory."""

from __future__ import annotations

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn


class LoadScorer:
    name = "load"
    depends_on: DependsOn = "row"
    counts_placements = False
    """A placement does not change measured values."""

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE - (cluster.cpu_load[rows] + cluster.memory_load[rows]) // 2
        return scores
