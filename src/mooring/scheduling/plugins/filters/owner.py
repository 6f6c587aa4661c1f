"""A node that belongs to a user runs that user's tasks and nobody else's."""

from __future__ import annotations

from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
