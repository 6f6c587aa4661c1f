"""Only nodes that have every label of the node selector."""

from __future__ import annotations

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.node_matching import selected
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class NodeSelectorFilter:
    name = "node_selector"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.node_selector)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return selected(shape.constraints, cluster, rows)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        wanted = ", ".join(f"{key}={value}" for key, value in shape.constraints.node_selector)
        return Rejection(
            "node-selector-mismatch",
            f"{len(rows):,} without the requested labels ({wanted})",
            details={"node_selector": dict(shape.constraints.node_selector)},
        )
