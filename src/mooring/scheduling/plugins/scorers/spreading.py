"""Prefers nodes, zones and regions with few tasks like this one: of the same project, with the same labels."""

from __future__ import annotations

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.model.labels import equal_to
from mooring.scheduling.arrays import Rows, Scores
from mooring.scheduling.columns import NODE_NAME, Cluster
from mooring.scheduling.domains import domain_totals, has_label, of_domain
from mooring.scheduling.placed import Matcher
from mooring.scheduling.plugins import DependsOn
from mooring.scheduling.shapes import Shape

LEVELS = (NODE_NAME, "topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Node, zone and domain; a level that no node is labelled for is left out."""


class SpreadingScorer:
    """The mean over the levels of 1 / (1 + tasks alike in the domain)."""

    name = "spreading"
    depends_on: DependsOn = "domain"

    def __init__(self, levels: tuple[str, ...] = LEVELS) -> None:
        self.levels = levels

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        constraints = shape.constraints
        alike = Matcher(equal_to(dict(constraints.labels)), frozenset((constraints.project,)), staying=True)
        counts = cluster.placed.counts(alike)
        levels = [key for key in self.levels if (cluster.domains(key)[0] >= 0).any()]
        scores = np.zeros(len(rows), dtype=np.int64)
        for key in levels:
            here = of_domain(cluster, key, domain_totals(cluster, key, counts), rows)
            scores += np.where(has_label(cluster, key, rows), SCORE_ONE // len(levels) // (1 + here), 0)
        return scores
