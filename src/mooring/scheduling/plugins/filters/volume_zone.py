"""Only nodes in a zone where all of the task's volumes are accessible."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.node_matching import satisfied
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class VolumeZoneFilter:
    name = "volume_zone"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(shape.constraints.volume_zones)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.ones(len(rows), dtype=np.bool_)
        for key, values in shape.constraints.volume_zones:
            mask &= satisfied(Requirement(key, Operator.IN, tuple(sorted(values))), cluster, rows)
        return mask

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        zones = {key: sorted(values) for key, values in shape.constraints.volume_zones}
        wanted = "; ".join(f"{key} {' or '.join(values)}" for key, values in zones.items())
        return Rejection(
            "volume-zone", f"{len(rows):,} wrong zone for its volumes ({wanted})", details={"zones": zones}
        )
