"""Avoids nodes with PreferNoSchedule taints that the task does not tolerate: 1 / (1 + their number)."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.workloads.constraints import Effect
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.node_matching import untolerated
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn

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
    """Return the number of soft taints in each set of taints that the task does not tolerate."""
    tolerations = shape.constraints.tolerations
    return np.array([len(untolerated(taints, tolerations, SOFT)) for taints in cluster.taint_sets.values], np.int64)
