"""Prefers nodes that match the preferred node affinity: the matched share of the weights asked for."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.node_terms import matching
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape


class NodeAffinityScorer:
    name = "node_affinity"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(preferred.weight for preferred in shape.constraints.preferred_nodes)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        wishes = shape.constraints.preferred_nodes
        asked = max(sum(abs(wish.weight) for wish in wishes), 1)
        scores = np.zeros(len(rows), dtype=np.int64)
        for wish in wishes:
            scores += SCORE_ONE * abs(wish.weight) // asked * (matching(wish.term, cluster, rows) ^ (wish.weight < 0))
        return scores
