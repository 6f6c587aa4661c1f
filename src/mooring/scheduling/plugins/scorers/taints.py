"""Avoids nodes with PreferNoSchedule taints that the task does not tolerate: 1 / (1 + their number)."""

from __future__ import annotations

import numpy as np

from mooring.model.constraints import Effect
from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.node_terms import untolerated
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape

SOFT = (Effect.PREFER_NO_SCHEDULE,)


class TaintsScorer:
    name = "taints"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(untolerated_by_set(shape, cluster).any())

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE // (1 + untolerated_by_set(shape, cluster)[cluster.taints[rows]])
        return scores


def untolerated_by_set(shape: Shape, cluster: Cluster) -> Scores:
    """How many soft taints of each set of taints the task does not tolerate."""
    tolerations = shape.constraints.tolerations
    return np.array([len(untolerated(taints, tolerations, SOFT)) for taints in cluster.taint_sets.values], np.int64)
