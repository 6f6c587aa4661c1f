"""Prefers topology domains that match the preferred task affinity and anti-affinity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.placed_tasks import matcher_of
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.topology_domains import domain_totals, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, MatchingTasks
from mooring.scheduling.plugins.protocols import DependsOn


class TaskAffinityScorer:
    """The matched fraction of the total weight; anti-affinity is matched where there is no such task."""

    name = "task_affinity"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(preferred.weight for preferred in shape.constraints.preferred_tasks)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        constraints = shape.constraints
        preferences = constraints.preferred_tasks
        total_weight = max(sum(abs(preference.weight) for preference in preferences), 1)
        scores = np.zeros(len(rows), dtype=np.int64)
        for preference in preferences:
            counts = cluster.placed_tasks.counts(matcher_of(preference.term, constraints.project))
            totals = domain_totals(cluster, preference.term.topology_key, counts)
            present = of_domain(cluster, preference.term.topology_key, totals, rows) > 0
            scores += SCORE_ONE * abs(preference.weight) // total_weight * (present ^ (preference.weight < 0))
        return scores

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        constraints = shape.constraints
        preferences = constraints.preferred_tasks
        total_weight = max(sum(abs(preference.weight) for preference in preferences), 1)
        for preference in preferences:
            yield KernelTerm(
                KernelTermKind.PREFERRED_TASKS,
                MatchingTasks(matcher_of(preference.term, constraints.project)),
                preference.term.topology_key,
                limit=int(preference.weight > 0),
                base=SCORE_ONE * abs(preference.weight) // total_weight,
            )
