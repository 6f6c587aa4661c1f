"""Only nodes that have the task's runtime: containers or processes."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class RuntimeFilter:
    name = "runtime"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        offered = np.array([shape.runtime in runtimes for runtimes in cluster.runtime_sets.values], dtype=np.bool_)
        return offered[cluster.runtimes[rows]]

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection(
            "runtime-missing",
            f"{len(rows):,} without the {shape.runtime} runtime",
            details={"runtime": shape.runtime},
        )
