"""Only the node that the task names, if it names one."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.node_matching import satisfied
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


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
            "node-name-mismatch", f"{len(rows):,} not the requested node ({name})", details={"node_name": name}
        )
