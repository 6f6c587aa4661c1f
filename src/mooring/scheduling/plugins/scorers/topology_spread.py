"""Prefers domains with few tasks that the soft spread constraints count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.decisions import SCORE_ONE
from mooring.scheduling.cluster.arrays import Rows, Scores
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.spread_counts import matcher_of_spread, taking_part
from mooring.scheduling.cluster.topology_domains import domain_totals, has_label, of_domain
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, MatchingTasks
from mooring.scheduling.plugins.protocols import DependsOn


class TopologySpreadScorer:
    """The mean over the constraints of max_skew / (max_skew + tasks in the domain); 0 for a node without the label."""

    name = "topology_spread"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(not spread.hard for spread in shape.constraints.spread)

    def score(self, shape: Shape, cluster: Cluster, rows: Rows) -> Scores:
        constraints = shape.constraints
        soft = [spread for spread in constraints.spread if not spread.hard]
        members = cluster.rows_of_pool(shape.pool)
        scores = np.zeros(len(rows), dtype=np.int64)
        for spread in soft:
            key, skew = spread.topology_key, spread.max_skew
            counting = members[taking_part(spread, constraints, cluster, members)]
            counts = cluster.placed_tasks.counts(matcher_of_spread(spread, constraints))
            here = of_domain(cluster, key, domain_totals(cluster, key, counts, counting), rows)
            share = SCORE_ONE // len(soft) * skew // (skew + here)
            scores += np.where(has_label(cluster, key, rows), share, 0)
        return scores

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        constraints = shape.constraints
        soft = [spread for spread in constraints.spread if not spread.hard]
        members = cluster.rows_of_pool(shape.pool)
        for spread in soft:
            mask = np.zeros(cluster.capacity, dtype=np.bool_)
            mask[members[taking_part(spread, constraints, cluster, members)]] = True
            yield KernelTerm(
                KernelTermKind.FEWER_TASKS,
                MatchingTasks(matcher_of_spread(spread, constraints)),
                spread.topology_key,
                mask,
                limit=spread.max_skew,
                base=SCORE_ONE // len(soft),
            )
