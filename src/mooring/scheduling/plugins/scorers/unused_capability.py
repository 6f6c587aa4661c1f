"""Avoids nodes with capabilities that the task does not need: 1 / (1 + free slots that it does not request)."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelFormula
from mooring.scheduling.plugins.protocols import DependsOn


class UnusedCapabilityScorer:
    name = "unused_capability"
    depends_on: DependsOn = "row"
    kernel_formula = KernelFormula("unused_capability")

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        scores: Scores = SCORE_ONE // (1 + unused_capabilities(shape, cluster, rows))
        return scores


def unused_capabilities(shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
    """Return the number of slots per row that have free capacity and are not requested."""
    if len(rows) == 1:
        # For a single number an array operation costs far more than the comparison.
        row, allocatable, taken, request = rows.item(0), cluster.allocatable, cluster.taken, dict(shape.request)
        unused = [
            allocatable.item(slot, row) > taken.item(slot, row)
            for slot, name in enumerate(cluster.slot_names)
            if not request.get(name)
        ]
        return np.array([sum(unused)], dtype=np.int64)
    requested = {name for name, amount in shape.request if amount}
    slots = [position for position, name in enumerate(cluster.slot_names) if name not in requested]
    not_requested = np.array(slots, dtype=np.intp).reshape(-1, 1)
    free = cluster.allocatable[not_requested, rows] > cluster.taken[not_requested, rows]
    counts: Scores = free.sum(axis=0, dtype=np.int64)
    return counts
