"""Only nodes that are alive and open for new tasks."""

from __future__ import annotations

from mooring.model.constraints import Constraints, Taint
from mooring.model.lifecycle import NodeStatus
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.hints import OwnChange
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape

CORDON = Taint("node.kubernetes.io/unschedulable")
"""Who tolerates this may run on a node that is closed for new tasks."""


class ReadyFilter:
    name = "ready"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        ready = cluster.ready[rows]
        if _tolerates_cordon(shape.constraints):
            ready = ready | cluster.cordoned[rows]
        return ready

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        found = (cluster.nodes[row] for row in rows)
        suspect = sum(node is not None and node.status is NodeStatus.SUSPECT for node in found)
        words = f"{len(rows):,} not ready" + (f" ({suspect:,} suspect)" if suspect else "")
        return Rejection("node-not-ready", words, details={"suspect": suspect} if suspect else {})

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        return _tolerates_cordon(change.after.constraints)


def _tolerates_cordon(constraints: Constraints) -> bool:
    return any(toleration.tolerates(CORDON) for toleration in constraints.tolerations)
