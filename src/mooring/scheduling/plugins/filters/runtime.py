"""Only nodes that have the runtime which the task needs: containers, processes."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
