"""A row-local scorer in NumPy: the fewer tasks a node has, the better."""

from __future__ import annotations

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins import DependsOn


class FewNeighboursScorer:
    name = "few_neighbours"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE // (1 + cluster.tasks[rows])
        return scores
