"""TaintToleration: the fewer soft taints that are not tolerated, the better."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT, by_largest
from mooring.scheduling.plugins.scorers.taints import untolerated_by_set


class KubernetesTaints:
    name = "kubernetes_taints"
    depends_on: DependsOn = "cluster"
    kernel_points: KernelPoints = "taints"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(untolerated_by_set(shape, cluster).any())

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        return by_largest(self.raw_scores(shape, cluster, rows), reverse=True) * ONE_POINT

    def raw_scores(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        """Return the number of soft taints per row that the task does not tolerate."""
        by_set = untolerated_by_set(shape, cluster)
        raw: Scores = by_set[cluster.taints[rows]] if len(by_set) else np.zeros(len(rows), dtype=np.int64)
        return raw
