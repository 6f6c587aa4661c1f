"""Prefers nodes that have the task's container images: the fraction of the images that is present."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.protocols import DependsOn


class ImagesScorer:
    name = "images"
    depends_on: DependsOn = "static"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(cluster.image_was_seen(image) for image in shape.constraints.images)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        images = shape.constraints.images
        present = np.zeros(cluster.capacity, dtype=np.int64)
        for image in images:
            present[list(cluster.image_sizes(image))] += 1
        scores: Scores = SCORE_ONE * present[rows] // max(len(images), 1)
        return scores
