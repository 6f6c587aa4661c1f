"""Only nodes that match a term of the required node affinity, and a term of the affinity that the profile adds."""

from __future__ import annotations

import numpy as np

from mooring.model.workloads.constraints import NodeTerm
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.node_matching import matching_any
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class NodeAffinityFilter:
    name = "node_affinity"
    depends_on: DependsOn = "static"

    def __init__(self, added_terms: tuple[NodeTerm, ...] | None = None) -> None:
        self._added_terms = added_terms
        """Required for every task, in addition to its own terms."""

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.constraints.node_terms is not None or self._added_terms is not None

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.ones(len(rows), dtype=np.bool_)
        for terms in (self._added_terms, shape.constraints.node_terms):
            if terms is not None:
                mask &= matching_any(terms, cluster, rows)
        return mask

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        if self._added_terms is not None and not matching_any(self._added_terms, cluster, rows).any():
            return Rejection("node-affinity-mismatch", f"{len(rows):,} not matching the node affinity of the profile")
        return Rejection("node-affinity-mismatch", f"{len(rows):,} not matching the node affinity")
