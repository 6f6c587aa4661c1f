"""Only the designated nodes, if they are required. Designated nodes that are preferred are a tier above all scores."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.node_matching import satisfied
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class DesignatedFilter:
    name = "designated"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.constraints.designated_strictly

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        constraints = shape.constraints
        if not constraints.designated_strictly:
            return np.ones(len(rows), dtype=np.bool_)
        return satisfied(Requirement(NODE_NAME, Operator.IN, tuple(sorted(constraints.designated))), cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection(
            "node-not-designated",
            f"{len(rows):,} not among the {len(shape.constraints.designated)} designated",
            details={"designated": sorted(shape.constraints.designated)},
        )
