"""Only nodes that have every label of the node selector."""

from __future__ import annotations

from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.node_terms import selected
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
            f"{len(rows):,} without the labels asked for ({wanted})",
            details={"node_selector": dict(shape.constraints.node_selector)},
        )
