"""NodeAffinity: the weights of the preferred terms that match, normalised by the largest sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.errors import InvalidInput
from mooring.model.workloads.constraints import PreferredNodes
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.node_matching import matching
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT, by_largest


class KubernetesNodeAffinity:
    name = "kubernetes_node_affinity"
    depends_on: DependsOn = "cluster"

    def __init__(self, added: tuple[PreferredNodes, ...] = ()) -> None:
        self.added = added
        """Preferred for every task, in addition to its own preferences."""

    @property
    def kernel_points(self) -> KernelPoints | None:
        return None if self.added else "preferred_nodes"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.preferred_nodes or self.added)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        for preference in (*shape.constraints.preferred_nodes, *self.added):
            if preference.weight and preference.term.problem is not None:
                raise InvalidInput(preference.term.problem, code="invalid-selector")
        return by_largest(self.raw_scores(shape, cluster, rows)) * ONE_POINT

    def raw_scores(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        """Return the sum of the weights of the terms that match each row."""
        return preferred_sum((*shape.constraints.preferred_nodes, *self.added), cluster, rows)


def preferred_sum(preferred: Sequence[PreferredNodes], cluster: Cluster, rows: Rows) -> Scores:
    raw = np.zeros(len(rows), dtype=np.int64)
    for each in preferred:
        if each.weight:
            raw += each.weight * matching(each.term, cluster, rows)
    return raw
