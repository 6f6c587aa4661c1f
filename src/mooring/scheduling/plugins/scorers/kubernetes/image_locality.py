"""ImageLocality: the sizes of the present images, each weighted by the fraction of nodes that have it."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT

SMALLEST = 23 << 20
LARGEST_PER_CONTAINER = 1000 << 20


class KubernetesImageLocality:
    """`images` of the constraints has one entry per container, init containers included."""

    name = "kubernetes_image_locality"
    depends_on: DependsOn = "cluster"
    kernel_points: KernelPoints = "unconcerned"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(cluster.image_was_seen(image) for image in shape.constraints.images)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        images = shape.constraints.images
        if not images:
            return np.zeros(len(rows), dtype=np.int64)
        members = cluster.rows_of_pool(shape.pool)
        present = np.zeros(cluster.capacity, dtype=np.int64)
        for image in images:
            sizes = cluster.image_sizes(image)
            nodes = sum(row in sizes for row in members.tolist())
            for row, size in sizes.items():
                present[row] += int(float(size) * (nodes / max(len(members), 1)))
        largest = LARGEST_PER_CONTAINER * len(images)
        clamped = np.clip(present[rows], SMALLEST, largest)
        points: Scores = 100 * (clamped - SMALLEST) // (largest - SMALLEST)
        return points * ONE_POINT
