"""Only nodes created from the machine image that the task names, in a version that matches its pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np

from mooring.model.versions import allows
from mooring.model.workloads.constraints import MachineImage
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn, Rejection


class MachineImageFilter:
    name = "machine_image"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return shape.constraints.machine_image is not None

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        wanted = shape.constraints.machine_image
        if wanted is None:
            return np.ones(len(rows), dtype=np.bool_)
        known = cluster.machine_images.values
        allowed = np.array([_fits(wanted, name, version) for name, version in known], dtype=np.bool_)
        answer: Mask = allowed[cluster.machine_image[rows]]
        return answer

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        wanted = shape.constraints.machine_image
        assert wanted is not None
        shown = wanted.name if wanted.version == "*" else f"{wanted.name} {wanted.version}"
        return Rejection(
            "machine-image-mismatch",
            f"{len(rows):,} of another machine image (needs {shown})",
            details={"machine_image": wanted.name, "version": wanted.version},
        )


def _fits(wanted: MachineImage, name: str | None, version: str) -> bool:
    return name is not None and fnmatchcase(name, wanted.name) and allows(wanted.version, version)
