"""NodeAffinity: the weights of the preferred terms that match, normalised by the largest sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.constraints import PreferredNodes
from mooring.model.errors import InvalidInput
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.node_terms import matching
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.kubernetes.points import ONE_POINT, by_largest
from mooring.scheduling.shapes import Shape


class KubernetesNodeAffinity:
    name = "kubernetes_node_affinity"
    depends_on: DependsOn = "cluster"

    def __init__(self, added: tuple[PreferredNodes, ...] = ()) -> None:
        self.added = added
        """Preferred for every task, beside its own wishes."""

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.preferred_nodes or self.added)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        wishes = (*shape.constraints.preferred_nodes, *self.added)
        for wish in wishes:
            if wish.weight and wish.term.problem is not None:
                raise InvalidInput(wish.term.problem, code="invalid-selector")
        return by_largest(preferred_sum(wishes, cluster, rows)) * ONE_POINT


def preferred_sum(wishes: Sequence[PreferredNodes], cluster: Cluster, rows: Rows) -> Scores:
    """The sum of the weights of the terms that match each row."""
    raw = np.zeros(len(rows), dtype=np.int64)
    for wish in wishes:
        if wish.weight:
            raw += wish.weight * matching(wish.term, cluster, rows)
    return raw
