"""Keeps work off nodes that can do more than it needs: 1 / (1 + free slots that it does not ask for)."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape


class UnusedCapabilityScorer:
    name = "unused_capability"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE // (1 + unused_capabilities(shape, cluster, rows))
        return scores


def unused_capabilities(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """How many slots of each row have something free that the task does not ask for; absent is the same as 0."""
    asked = {name for name, amount in shape.request if amount}
    slots = [place for place, name in enumerate(cluster.slot_names) if name not in asked]
    unasked = np.array(slots, dtype=np.intp).reshape(-1, 1)
    free = cluster.allocatable[unasked, rows] > cluster.taken[unasked, rows]
    counts: Scores = free.sum(axis=0, dtype=np.int64)
    return counts
