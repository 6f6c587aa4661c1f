"""A row-local scorer with a compiled formula: the more memory per free core stays behind, the better.

A core without memory is of no use to anyone; 8 GiB for each core are enough for full marks.
"""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.columns import CPU, MEMORY
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.compiled.scorer_kernel import Floats, Int64s, row_score
from mooring.scheduling.plugins import DependsOn

ENOUGH = (8 << 30) // 1000
"""Bytes for a thousandth of a core."""


def formula(free: Int64s, inverse: Floats, request: Int64s, row: int) -> int:
    """The same as `score`, for one row."""
    cores = max(free[row, CPU] - request[CPU], 1)
    memory = max(free[row, MEMORY] - request[MEMORY], 0)
    return min(memory // cores, ENOUGH) * SCORE_ONE // ENOUGH  # type: ignore[no-any-return]


class MemoryPerCoreScorer:
    name = "memory_per_core"
    depends_on: DependsOn = "row"
    kernel = row_score(formula)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        wanted = dict(shape.request)
        free = cluster.allocatable[:2, rows] - cluster.taken[:2, rows]
        cores = np.maximum(free[CPU] - wanted.get("cpu", 0), 1)
        memory = np.maximum(free[MEMORY] - wanted.get("memory", 0), 0)
        scores: Scores = np.minimum(memory // cores, ENOUGH) * SCORE_ONE // ENOUGH
        return scores
