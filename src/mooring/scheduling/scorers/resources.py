"""Prefers nodes with the largest share of processor and memory left after the placement."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.columns import CPU, MEMORY, Cluster, Rows, Scores
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape

_CPU_AND_MEMORY = np.array([[CPU], [MEMORY]], dtype=np.intp)
_EXACT_BITS = 63 - SCORE_ONE.bit_length()


class ResourcesScorer:
    """The mean over both slots of (allocatable - taken - request) / allocatable; a slot that a node lacks gives 0."""

    name = "resources"
    depends_on: DependsOn = "row"

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        allocatable = cluster.allocatable[_CPU_AND_MEMORY, rows]
        free = np.maximum(allocatable - cluster.taken[_CPU_AND_MEMORY, rows], 0)
        left = np.maximum(free - cluster.demand(shape.request).cpu_and_memory, 0)
        # Amounts beyond 43 bits (8 TiB of memory) lose their lowest bits, so that the product stays within int64.
        surplus_bits = np.maximum(np.frexp(allocatable)[1] - _EXACT_BITS, 0)
        share = (left >> surplus_bits) * SCORE_ONE // np.maximum(allocatable >> surplus_bits, 1)
        scores: Scores = (share[0] + share[1]) // 2
        return scores
