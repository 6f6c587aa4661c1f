"""Only nodes that are alive and open for new tasks."""

from __future__ import annotations

from mooring.scheduling.columns import Cluster, Mask, Rows
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


class ReadyFilter:
    name = "ready"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return cluster.ready[rows]

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("node-not-ready", f"{len(rows)} not ready")
