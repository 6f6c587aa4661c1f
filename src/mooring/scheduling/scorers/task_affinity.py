"""Prefers domains with the tasks that the task would be with and without those that it would be apart from."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import domain_totals, of_domain
from mooring.scheduling.placed import matcher_of
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape


class TaskAffinityScorer:
    """The matched share of the weights asked for; a wish to be apart is matched where no such task is."""

    name = "task_affinity"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(preferred.weight for preferred in shape.constraints.preferred_tasks)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        constraints = shape.constraints
        wishes = constraints.preferred_tasks
        asked = max(sum(abs(wish.weight) for wish in wishes), 1)
        scores = np.zeros(len(rows), dtype=np.int64)
        for wish in wishes:
            counts = cluster.placed.counts(matcher_of(wish.term, constraints.project))
            totals = domain_totals(cluster, wish.term.topology_key, counts)
            beside = of_domain(cluster, wish.term.topology_key, totals, rows) > 0
            scores += SCORE_ONE * abs(wish.weight) // asked * (beside ^ (wish.weight < 0))
        return scores
