"""PodTopologySpread: few matching tasks in the domains of the soft constraints; keys with few domains weigh less."""

from __future__ import annotations

import math

import numpy as np

from mooring.model.workloads.constraints import Spread
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.spread_counts import labelled_for_all, matcher_of_spread, taking_part
from mooring.scheduling.cluster.topology_domains import domain_totals, has_label, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import KernelPoints
from mooring.scheduling.plugins.protocols import DependsOn
from mooring.scheduling.plugins.scorers.kubernetes.points import ONE_POINT

HOST = "kubernetes.io/hostname"
"""For this key every node is a domain of its own, whatever the label says."""


class KubernetesTopologySpread:
    """`defaults` are the soft constraints of tasks that have no spread constraints of their own. Nodes without a label
    that the defaults name still take part, while a task's own constraints leave such nodes out.
    """

    name = "kubernetes_topology_spread"
    depends_on: DependsOn = "cluster"
    kernel_points: KernelPoints = "unconcerned"

    def __init__(self, defaults: tuple[Spread, ...] = ()) -> None:
        self.defaults = defaults

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return bool(self._soft(shape))

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        soft = self._soft(shape)
        if not soft:
            return np.zeros(len(rows), dtype=np.int64)
        needed = soft if shape.constraints.spread else ()
        scored = labelled_for_all(needed, cluster, rows)
        raw = np.zeros(len(rows), dtype=np.float64)
        for spread in soft:
            here, domains = _counted(spread, needed, shape, cluster, rows, scored)
            labelled = has_label(cluster, spread.topology_key, rows)
            raw += np.where(labelled, here * math.log(domains + 2) + (spread.max_skew - 1), 0.0)
        return _normalised(np.floor(raw + 0.5).astype(np.int64), scored) * ONE_POINT

    def _soft(self, shape: Shape) -> tuple[Spread, ...]:
        spread = shape.constraints.spread or self.defaults
        return tuple(constraint for constraint in spread if not constraint.hard)


def _counted(
    spread: Spread, needed: tuple[Spread, ...], shape: Shape, cluster: Cluster, rows: Rows, scored: Mask
) -> tuple[Scores, int]:
    """Return the matching tasks in the domain of every row, and the number of domains of the feasible nodes."""
    constraints = shape.constraints
    counts = cluster.placed_tasks.counts(matcher_of_spread(spread, constraints))
    if spread.topology_key == HOST:
        return counts[rows].astype(np.int64), int(scored.sum())
    members = cluster.rows_of_pool(shape.pool)
    members = members[labelled_for_all(needed, cluster, members)]
    members = members[taking_part(spread, constraints, cluster, members)]
    totals = domain_totals(cluster, spread.topology_key, counts, members)
    codes = cluster.domains(spread.topology_key)[0][rows]
    return of_domain(cluster, spread.topology_key, totals, rows), len(np.unique(codes[scored]))


def _normalised(raw: Scores, labelled: Mask) -> Scores:
    points = np.zeros(len(raw), dtype=np.int64)
    if not labelled.any():
        return points
    smallest, largest = int(raw[labelled].min()), int(raw[labelled].max())
    points[labelled] = 100 if largest <= 0 else 100 * (largest + smallest - raw[labelled]) // largest
    return points
