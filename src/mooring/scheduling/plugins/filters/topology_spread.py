"""Only nodes where the task keeps the numbers of matching tasks per topology domain within the allowed skew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from mooring.model.nodes.node import Node
from mooring.model.workloads.constraints import Spread
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.node_matching import wanted_nodes
from mooring.scheduling.cluster.shapes import Shape
from mooring.scheduling.cluster.spread_counts import (
    counts_itself,
    labelled_for_all,
    matcher_of_spread,
    taking_part,
)
from mooring.scheduling.cluster.topology_domains import (
    domain_of,
    domain_totals,
    has_label,
    of_domain,
)
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.kernel_rules import CounterSource, KernelTerm, KernelTermKind, MatchingTasks
from mooring.scheduling.plugins.protocols import DependsOn, Rejection
from mooring.scheduling.queue.requeue_hints import NodeChange, OwnChange, Watch


class TopologySpreadFilter:
    """The number in the domain including the task, minus the lowest number of any eligible domain, must not exceed
    `max_skew`. With fewer domains than `min_domains` the lowest number counts as 0.
    """

    name = "topology_spread"
    depends_on: DependsOn = "domain"

    def concerns(self, shape: Shape, cluster: Cluster) -> bool:
        return any(spread.hard for spread in shape.constraints.spread)

    def feasible(self, shape: Shape, cluster: Cluster, rows: Rows) -> Mask:
        mask = np.ones(len(rows), dtype=np.bool_)
        spreads = _hard(shape)
        if not spreads:
            return mask
        for within in _verdicts(spreads, shape, cluster, rows):
            mask &= within
        return mask

    def explain(self, shape: Shape, cluster: Cluster, rows: Rows) -> Rejection:
        spreads = _hard(shape)
        unlabelled = _count_without_label(spreads, shape, cluster, rows)
        words = []
        if unlabelled < len(rows):
            skews = ", ".join(f"{spread.topology_key} at most {spread.max_skew}" for spread in spreads)
            words.append(f"{len(rows) - unlabelled:,} where the topology skew would be too large ({skews})")
        if unlabelled:
            words.append(f"{unlabelled:,} without a topology label of the spread")
        return Rejection(
            "topology-spread",
            ", ".join(words),
            cure="release" if unlabelled < len(rows) else "change",
            details={"topology_keys": [spread.topology_key for spread in spreads]},
        )

    def kernel_terms(self, shape: Shape, cluster: Cluster, sources: Iterable[CounterSource]) -> Iterator[KernelTerm]:
        spreads, constraints = _hard(shape), shape.constraints
        if not spreads:
            return
        members = cluster.rows_of_pool(shape.pool)
        members = members[labelled_for_all(spreads, cluster, members)]
        for spread in spreads:
            mask = np.zeros(cluster.capacity, dtype=np.bool_)
            mask[members[taking_part(spread, constraints, cluster, members)]] = True
            yield KernelTerm(
                KernelTermKind.SPREAD,
                MatchingTasks(matcher_of_spread(spread, constraints)),
                spread.topology_key,
                mask,
                limit=spread.max_skew,
                counts_itself=counts_itself(spread, constraints),
                min_domains=spread.min_domains or 0,
            )

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        """Return what to watch: more tasks in the emptiest domain, or fewer in the fullest one, cure a rejection."""
        return tuple(Watch(matcher_of_spread(spread, shape.constraints)) for spread in _hard(shape))

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Return whether the set of domains, or of eligible nodes, changed."""
        spreads = _hard(shape)
        return _taking_part(change.before, spreads, shape) != _taking_part(change.after, spreads, shape)

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        before, after, spreads = change.before.constraints, change.after.constraints, _hard(shape)
        if before.tolerations != after.tolerations and any(spread.honor_node_taints for spread in spreads):
            return True
        selectors = [spread.selector for spread in spreads if spread.selector is not None]
        return any(s.matches(dict(before.labels)) != s.matches(dict(after.labels)) for s in selectors)


def _taking_part(node: Node | None, spreads: tuple[Spread, ...], shape: Shape) -> tuple[object, ...] | None:
    """Return the properties that decide whether and where a node counts; None if it lacks a label and never does."""
    domains = [domain_of(node, spread.topology_key) for spread in spreads]
    if node is None or not spreads or None in domains:
        return None
    alone = Cluster([node])
    return node.pool, node.taints, *domains, bool(wanted_nodes(shape.constraints, alone, alone.rows)[0])


def _hard(shape: Shape) -> tuple[Spread, ...]:
    return tuple(spread for spread in shape.constraints.spread if spread.hard)


def _verdicts(spreads: tuple[Spread, ...], shape: Shape, cluster: Cluster, rows: Rows) -> Iterator[Mask]:
    """Yield the answer of each constraint for the rows."""
    members = cluster.rows_of_pool(shape.pool)
    members = members[labelled_for_all(spreads, cluster, members)]
    for spread in spreads:
        yield _within_skew(spread, shape, cluster, members, rows)


def _count_without_label(spreads: tuple[Spread, ...], shape: Shape, cluster: Cluster, rows: Rows) -> int:
    """Return the number of rows that lack the label of the first constraint that rejects them."""
    passing = np.ones(len(rows), dtype=np.bool_)
    number = 0
    for spread, within in zip(spreads, _verdicts(spreads, shape, cluster, rows), strict=True):
        number += int((passing & ~has_label(cluster, spread.topology_key, rows)).sum())
        passing &= within
    return number


def _within_skew(spread: Spread, shape: Shape, cluster: Cluster, members: Rows, rows: Rows) -> Mask:
    key, constraints = spread.topology_key, shape.constraints
    counting = members[taking_part(spread, constraints, cluster, members)]
    counts = cluster.placed_tasks.counts(matcher_of_spread(spread, constraints))
    totals = domain_totals(cluster, key, counts, counting)
    present = np.unique(cluster.domains(key)[0][counting])
    least = int(totals[present].min()) if len(present) >= (spread.min_domains or 1) else 0
    here = of_domain(cluster, key, totals, rows) + counts_itself(spread, constraints)
    within: Mask = (here - least <= spread.max_skew) & has_label(cluster, key, rows)
    return within
