"""Only nodes that are alive and open for new tasks."""

from __future__ import annotations

from mooring.model.constraints import Taint
from mooring.scheduling.columns import Cluster, Mask, Rows
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape

CORDON = Taint("node.kubernetes.io/unschedulable")
"""Who tolerates this may run on a node that is closed for new tasks."""


class ReadyFilter:
    name = "ready"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        ready = cluster.ready[rows]
        if any(toleration.tolerates(CORDON) for toleration in shape.constraints.tolerations):
            ready = ready | cluster.cordoned[rows]
        return ready

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("node-not-ready", f"{len(rows):,} not ready")
