"""Prefers nodes, zones and regions with few tasks like this one: of the same project, with the same labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.labels import equal_to
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.columns import NODE_NAME
from mooring.scheduling.cluster.placed_tasks import Matcher
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.topology_domains import domain_totals, has_label, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, MatchingTasks
from mooring.scheduling.plugins.protocols import DependsOn

LEVELS = (NODE_NAME, "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Node, zone and region; a level without labelled nodes is left out."""


class SpreadingScorer:
    """The mean over the levels of 1 / (1 + tasks alike in the domain)."""

    name = "spreading"
    depends_on: DependsOn = "domain"

    def __init__(self, levels: tuple[str, ...] = LEVELS) -> None:
        self.levels = levels

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        counts = cluster.placed_tasks.counts(_matcher_of(shape))
        levels = self._levels(cluster)
        scores = np.zeros(len(rows), dtype=np.int64)
        for key in levels:
            here = of_domain(cluster, key, domain_totals(cluster, key, counts), rows)
            scores += np.where(has_label(cluster, key, rows), SCORE_ONE // len(levels) // (1 + here), 0)
        return scores

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        source, levels = MatchingTasks(_matcher_of(shape)), self._levels(cluster)
        for key in levels:
            yield KernelTerm(KernelTermKind.FEWER_TASKS, source, key, limit=1, base=SCORE_ONE // len(levels))

    def _levels(self, cluster: Cluster) -> list[str]:
        return [key for key in self.levels if (cluster.domains(key)[0] >= 0).any()]


def _matcher_of(shape: Shape) -> Matcher:
    constraints = shape.constraints
    return Matcher(equal_to(dict(constraints.labels)), frozenset((constraints.project,)), staying=True)
