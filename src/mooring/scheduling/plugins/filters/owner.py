"""Only nodes without an owner, and the task's user's own."""

from __future__ import annotations

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class OwnerFilter:
    name = "owner"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        owner = cluster.owner[rows]
        allowed: Mask = (owner == cluster.owners.code(None)) | (owner == cluster.owners.code(shape.owner))
        return allowed

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        verb = "belongs" if len(rows) == 1 else "belong"
        return Rejection("node-owned", f"{len(rows):,} {verb} to another user")
