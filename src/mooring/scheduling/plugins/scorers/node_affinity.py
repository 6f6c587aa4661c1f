"""Prefers nodes that match the preferred node affinity: the matched fraction of the total weight."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.node_matching import matching
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn


class NodeAffinityScorer:
    name = "node_affinity"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(preferred.weight for preferred in shape.constraints.preferred_nodes)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        preferences = shape.constraints.preferred_nodes
        total_weight = max(sum(abs(preference.weight) for preference in preferences), 1)
        scores = np.zeros(len(rows), dtype=np.int64)
        for preference in preferences:
            part = SCORE_ONE * abs(preference.weight) // total_weight
            scores += part * (matching(preference.term, cluster, rows) ^ (preference.weight < 0))
        return scores
