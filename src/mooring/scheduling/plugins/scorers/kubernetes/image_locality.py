"""ImageLocality: the sizes of the images that are present, each less the rarer it is in the cluster."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.kubernetes.points import ONE_POINT
from mooring.scheduling.shapes import Shape

SMALLEST = 23 << 20
LARGEST_PER_CONTAINER = 1000 << 20


class KubernetesImageLocality:
    """`images` of the constraints has one entry per container, init containers included."""

    name = "kubernetes_image_locality"
    depends_on: DependsOn = "cluster"

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
