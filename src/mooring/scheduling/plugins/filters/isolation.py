"""Process tasks go only to nodes that isolate them as much as their pool requires; containers go to any."""

from __future__ import annotations

import numpy as np

from mooring.model.nodes.isolation import suffices
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class IsolationFilter:
    name = "isolation"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.runtime == "process"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        enough = np.array([suffices(*pair) for pair in cluster.isolations.values], dtype=np.bool_)
        return enough[cluster.isolation[rows]]

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        pairs = {cluster.isolations.values[code] for code in np.unique(cluster.isolation[rows])}
        offered, required = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
        verb = "provides" if len(rows) == 1 else "provide"
        return Rejection(
            "isolation-insufficient",
            f"{len(rows):,} {verb} isolation {' or '.join(offered)}, below {' or '.join(required)}",
            details={"offered": offered, "required": required},
        )
