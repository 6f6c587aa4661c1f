"""InterPodAffinity: wishes of the task and of the tasks that run, summed per topology domain, stretched to 0..100."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.constraints import PreferredTasks
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import domain_totals, of_domain
from mooring.scheduling.placed import Counts, TermKind, matcher_of
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.scorers.kubernetes.points import ONE_POINT, by_range
from mooring.scheduling.shapes import Shape


class KubernetesTaskAffinity:
    """A placed task's required affinity to the new one counts with `hard_weight`, its wishes with their own weights."""

    name = "kubernetes_task_affinity"
    depends_on: DependsOn = "cluster"

    def __init__(self, hard_weight: int = 1, *, only_for_wishes: bool = False) -> None:
        """`only_for_wishes`: a task without wishes of its own is not scored by those of others."""
        self.hard_weight = hard_weight
        self.only_for_wishes = only_for_wishes

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        constraints = shape.constraints
        if self.only_for_wishes and not constraints.preferred_tasks:
            return False
        # The first task of a workload may pull those that follow it in the same pass.
        means, project = cluster.placed.means, constraints.project
        own = any(means(matcher_of(term, project), constraints) for term in constraints.affinity)
        return own or any(True for _ in self._contributions(shape, cluster))

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        raw = np.zeros(len(rows), dtype=np.int64)
        for key, weight, counts in self._contributions(shape, cluster):
            raw += weight * of_domain(cluster, key, domain_totals(cluster, key, counts), rows)
        return by_range(raw) * ONE_POINT

    def _contributions(self, shape: Shape, cluster: Cluster) -> Iterator[tuple[str, int, Counts]]:
        """Topology key, weight and number of tasks per row, for everything that pulls or pushes the task."""
        constraints, placed = shape.constraints, cluster.placed
        for wish in constraints.preferred_tasks:
            yield wish.term.topology_key, wish.weight, placed.counts(matcher_of(wish.term, constraints.project))
        kinds: tuple[TermKind, ...] = ("affinity", "preferred_tasks")
        for kind in kinds:
            for carried, project, carriers in placed.owners(kind):
                term = carried.term if isinstance(carried, PreferredTasks) else carried
                weight = carried.weight if isinstance(carried, PreferredTasks) else self.hard_weight
                if weight and placed.means(matcher_of(term, project), constraints):
                    yield term.topology_key, weight, carriers
