"""TaintToleration: the fewer soft taints that are not tolerated, the better."""

from __future__ import annotations

from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.kubernetes.points import ONE_POINT, by_largest
from mooring.scheduling.scorers.taints import untolerated_by_set
from mooring.scheduling.shapes import Shape


class KubernetesTaints:
    name = "kubernetes_taints"
    depends_on: DependsOn = "cluster"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(untolerated_by_set(shape, cluster).any())

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        raw = untolerated_by_set(shape, cluster)[cluster.taints[rows]]
        return by_largest(raw, reverse=True) * ONE_POINT
