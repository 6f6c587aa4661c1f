"""Only nodes of the CPU architecture that the task requests, if any."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class ArchitectureFilter:
    name = "architecture"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        if shape.architecture is None:
            return np.ones(len(rows), dtype=np.bool_)
        same: Mask = cluster.architecture[rows] == cluster.architectures.code(shape.architecture)
        return same

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection(
            "architecture-mismatch",
            f"{len(rows):,} of another architecture (needs {shape.architecture})",
            details={"architecture": shape.architecture},
        )
