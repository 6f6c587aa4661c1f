"""Only the node that has the task's local volumes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.workloads.constraints import MountedVolume
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class VolumesFilter:
    name = "volumes"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.volumes)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.ones(len(rows), dtype=np.bool_)
        for volume in _settled(shape):
            row = None if volume.node_id is None else cluster.row_of(volume.node_id)
            mask &= rows == (-1 if row is None else row)
        return mask

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        settled = list(_settled(shape))
        apart = len({volume.node for volume in settled}) > 1
        where = "; ".join(_described(volume, shape, cluster) for volume in settled)
        return Rejection(
            "volumes-apart" if apart else "volume-elsewhere",
            f"{len(rows):,} elsewhere: {where}",
            details={"volumes": {volume.name: volume.node for volume in settled}},
        )


def _settled(shape: Shape) -> Iterator[MountedVolume]:
    """Return the volumes that are, or were, on a node."""
    return (volume for volume in shape.constraints.volumes if volume.node is not None)


def _described(volume: MountedVolume, shape: Shape, cluster: Cluster) -> str:
    row = None if volume.node_id is None else cluster.row_of(volume.node_id)
    if row is None:
        return f"volume {volume.name} was on node {volume.node}, which was removed"
    node = cluster.node(row)
    words = f"volume {volume.name} is on node {node.name}"
    if not cluster.ready[row]:
        return f"{words}, which is {node.status.lower() if node.schedulable else 'closed'}"
    fits = cluster.fits(cluster.demand(shape.request), np.array([row], dtype=np.intp)).all()
    return words if fits else f"{words}, which is full"
