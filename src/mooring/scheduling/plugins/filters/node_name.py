"""Only the node that the task names, if it names one."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import NODE_NAME, Cluster
from mooring.scheduling.node_terms import satisfied
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class NodeNameFilter:
    name = "node_name"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.constraints.node_name is not None

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        name = shape.constraints.node_name
        if name is None:
            return np.ones(len(rows), dtype=np.bool_)
        return satisfied(Requirement(NODE_NAME, Operator.IN, (name,)), cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        name = shape.constraints.node_name
        return Rejection(
            "node-name-mismatch", f"{len(rows):,} not the node asked for ({name})", details={"node_name": name}
        )
