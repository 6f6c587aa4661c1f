"""A static filter with an option: nodes that are not approved take nothing."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins import DependsOn, Rejection

LABEL = "example.com/approved"


class ApprovedFilter:
    name = "approved"
    depends_on: DependsOn = "static"

    def __init__(self, value: str = "yes") -> None:
        """`value` is what the label must say. A pool sets it with `--filter approved:value=...`."""
        self._value = value

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        return np.array([cluster.node(row).labels.get(LABEL) == self._value for row in rows], dtype=np.bool_)

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        return Rejection("not-approved", f"{len(rows)} not approved ({LABEL} is not {self._value!r})")
