"""Only nodes in a zone from which all of the task's volumes can be reached."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.node_terms import satisfied
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape


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
