"""Prefers nodes whose measured load is low: half processor, half memory."""

from __future__ import annotations

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape


class LoadScorer:
    name = "load"
    depends_on: DependsOn = "row"
    counts_placements = False
    """A placement changes nothing that is measured."""

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE - (cluster.cpu_load[rows] + cluster.memory_load[rows]) // 2
        return scores
