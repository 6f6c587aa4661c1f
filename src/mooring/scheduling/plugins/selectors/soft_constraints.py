"""Soft constraints for selectors that do not use scores: preferred task affinity and PreferNoSchedule taints."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.cluster.arrays import Scores
from mooring.scheduling.plugins.protocols import Candidates
from mooring.scheduling.plugins.scorers.taints import TaintsScorer
from mooring.scheduling.plugins.scorers.task_affinity import TaskAffinityScorer
from mooring.scheduling.plugins.scorers.topology_spread import TopologySpreadScorer

_SCORERS = (TaskAffinityScorer(), TopologySpreadScorer(), TaintsScorer())


def soft_constraint_scores(candidates: Candidates) -> Scores:
    """Return the degree to which each node meets the soft constraints; equal for all nodes if there are none."""
    met = np.zeros(len(candidates.rows), dtype=np.int64)
    for scorer in _SCORERS:
        if scorer.concerns(candidates.shape, candidates.cluster):
            met += scorer.score(candidates.shape, candidates.cluster, candidates.rows)
    return met
