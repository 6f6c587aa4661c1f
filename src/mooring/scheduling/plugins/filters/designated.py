"""Only the designated nodes, where they are demanded; preferred ones are a tier before every score instead."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import NODE_NAME, Cluster
from mooring.scheduling.node_terms import satisfied
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
