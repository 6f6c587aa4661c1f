"""A static filter: nodes that were not approved take nothing."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape

LABEL = "example.com/approved"


class ApprovedFilter:
    name = "approved"
    depends_on: DependsOn = "static"

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return np.array([cluster.node(row).labels.get(LABEL) == "yes" for row in rows], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("not-approved", f"{len(rows)} not approved ({LABEL} is not 'yes')")
