"""What a task would rather be with or apart from, nodes to avoid among it, for selectors that look at no score."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.arrays import Scores
from mooring.scheduling.plugins import Candidates
from mooring.scheduling.scorers.taints import TaintsScorer
from mooring.scheduling.scorers.task_affinity import TaskAffinityScorer
from mooring.scheduling.scorers.topology_spread import TopologySpreadScorer

_SCORERS = (TaskAffinityScorer(), TopologySpreadScorer(), TaintsScorer())


def wished(candidates: Candidates) -> Scores:
    """How far each node meets the wishes about other tasks and is free of taints; the same for all where it can be."""
    met = np.zeros(len(candidates.rows), dtype=np.int64)
    for scorer in _SCORERS:
        if scorer.concerns(candidates.shape, candidates.cluster):
            met += scorer.score(candidates.shape, candidates.cluster, candidates.rows)
    return met
