"""A static scorer: the larger the share of renewable power that a node's label tells, the better."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.nodes.node import Node
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins import DependsOn

LABEL = "example.com/renewable-percent"


class GreenPowerScorer:
    name = "green_power"
    depends_on: DependsOn = "static"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        return np.array([_percent(cluster.node(row)) * SCORE_ONE // 100 for row in rows], dtype=np.int64)


def _percent(node: Node) -> int:
    """A label that says nothing sensible counts as no renewable power at all."""
    told = node.labels.get(LABEL, "")
    return min(int(told), 100) if told.isdecimal() else 0
