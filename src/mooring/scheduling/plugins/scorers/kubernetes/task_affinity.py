"""InterPodAffinity: preferences of the task and of running tasks, summed per topology domain, scaled to 0..100."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.workloads.constraints import PreferredTasks
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.placed_tasks import Counts, TermKind, matcher_of
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.topology_domains import domain_totals, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT, by_range


class KubernetesTaskAffinity:
    """Required affinity of a placed task counts with `hard_weight`, its preferences count with their own weights."""

    name = "kubernetes_task_affinity"
    depends_on: DependsOn = "cluster"
    kernel_points: KernelPoints = "unconcerned"

    def __init__(self, hard_weight: int = 1, *, only_for_wishes: bool = False) -> None:
        """`only_for_wishes`: a task without preferences of its own is not scored by those of others."""
        self.hard_weight = hard_weight
        self.only_for_wishes = only_for_wishes

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        if self.only_for_wishes and not constraints.preferred_tasks:
            return False
        # The first task of a workload may attract those that follow it in the same pass.
        matches, project = cluster.placed_tasks.matches, constraints.project
        own = any(matches(matcher_of(term, project), constraints) for term in constraints.affinity)
        return own or any(True for _ in self._contributions(shape, cluster))

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        raw = np.zeros(len(rows), dtype=np.int64)
        for key, weight, counts in self._contributions(shape, cluster):
            raw += weight * of_domain(cluster, key, domain_totals(cluster, key, counts), rows)
        return by_range(raw) * ONE_POINT

    def _contributions(self, shape: Shape, cluster: Cluster) -> Iterator[tuple[str, int, Counts]]:
        """Yield topology key, weight and number of tasks per row for everything that attracts or repels the task."""
        constraints, placed = shape.constraints, cluster.placed_tasks
        for preference in constraints.preferred_tasks:
            yield (
                preference.term.topology_key,
                preference.weight,
                placed.counts(matcher_of(preference.term, constraints.project)),
            )
        kinds: tuple[TermKind, ...] = ("affinity", "preferred_tasks")
        for kind in kinds:
            for carried, project, carriers in placed.terms(kind):
                term = carried.term if isinstance(carried, PreferredTasks) else carried
                weight = carried.weight if isinstance(carried, PreferredTasks) else self.hard_weight
                if weight and placed.matches(matcher_of(term, project), constraints):
                    yield term.topology_key, weight, carriers
