"""Only nodes where the task keeps the numbers of its like in the topology domains within the allowed skew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.constraints import Spread
from mooring.model.nodes import Node
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import domain_of, domain_totals, has_label, of_domain
from mooring.scheduling.hints import NodeChange, OwnChange, Watch
from mooring.scheduling.node_terms import wanted_nodes
from mooring.scheduling.plugins import DependsOn, Rejection
from mooring.scheduling.shapes import Shape
from mooring.scheduling.spreading import counts_itself, labelled_for_all, matcher_of_spread, taking_part


class TopologySpreadFilter:
    """The number in the domain with the task, less the smallest number of any domain that takes part, must not exceed
    `max_skew`. With fewer domains than `min_domains` the smallest number counts as 0.
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
        unlabelled = _fail_for_want_of_a_label(spreads, shape, cluster, rows)
        words = []
        if unlabelled < len(rows):
            skews = ", ".join(f"{spread.topology_key} at most {spread.max_skew}" for spread in spreads)
            words.append(f"{len(rows) - unlabelled:,} where the spread would be too uneven ({skews})")
        if unlabelled:
            words.append(f"{unlabelled:,} without a label that the spread needs")
        return Rejection(
            "topology-spread",
            ", ".join(words),
            cure="release" if unlabelled < len(rows) else "change",
            details={"topology_keys": [spread.topology_key for spread in spreads]},
        )

    def watched(self, shape: Shape, cluster: Cluster) -> tuple[Watch, ...]:
        """More tasks where there were fewest allow more elsewhere, as fewer do where there were most."""
        return tuple(Watch(matcher_of_spread(spread, shape.constraints)) for spread in _hard(shape))

    def cured_by_node(self, shape: Shape, cluster: Cluster, change: NodeChange) -> bool:
        """Another set of domains, or of nodes that take part in the count."""
        spreads = _hard(shape)
        return _taking_part(change.before, spreads, shape) != _taking_part(change.after, spreads, shape)

    def cured_by_itself(self, shape: Shape, cluster: Cluster, change: OwnChange) -> bool:
        before, after, spreads = change.before.constraints, change.after.constraints, _hard(shape)
        if before.tolerations != after.tolerations and any(spread.honor_node_taints for spread in spreads):
            return True
        selectors = [spread.selector for spread in spreads if spread.selector is not None]
        return any(s.matches(dict(before.labels)) != s.matches(dict(after.labels)) for s in selectors)


def _taking_part(node: Node | None, spreads: tuple[Spread, ...], shape: Shape) -> tuple[object, ...] | None:
    """What of a node decides whether and where it counts; None where it lacks a label, and so never does."""
    domains = [domain_of(node, spread.topology_key) for spread in spreads]
    if node is None or not spreads or None in domains:
        return None
    alone = Cluster([node])
    return node.pool, node.taints, *domains, bool(wanted_nodes(shape.constraints, alone, alone.rows)[0])


def _hard(shape: Shape) -> tuple[Spread, ...]:
    return tuple(spread for spread in shape.constraints.spread if spread.hard)


def _verdicts(spreads: tuple[Spread, ...], shape: Shape, cluster: Cluster, rows: Rows) -> Iterator[Mask]:
    """What each constraint says about the rows."""
    members = cluster.rows_of_pool(shape.pool)
    members = members[labelled_for_all(spreads, cluster, members)]
    for spread in spreads:
        yield _within_skew(spread, shape, cluster, members, rows)


def _fail_for_want_of_a_label(spreads: tuple[Spread, ...], shape: Shape, cluster: Cluster, rows: Rows) -> int:
    """How many rows lack the label of the first constraint that turns them down."""
    passing = np.ones(len(rows), dtype=np.bool_)
    number = 0
    for spread, within in zip(spreads, _verdicts(spreads, shape, cluster, rows), strict=True):
        number += int((passing & ~has_label(cluster, spread.topology_key, rows)).sum())
        passing &= within
    return number


def _within_skew(spread: Spread, shape: Shape, cluster: Cluster, members: Rows, rows: Rows) -> Mask:
    key, constraints = spread.topology_key, shape.constraints
    counting = members[taking_part(spread, constraints, cluster, members)]
    counts = cluster.placed.counts(matcher_of_spread(spread, constraints))
    totals = domain_totals(cluster, key, counts, counting)
    present = np.unique(cluster.domains(key)[0][counting])
    least = int(totals[present].min()) if len(present) >= (spread.min_domains or 1) else 0
    here = of_domain(cluster, key, totals, rows) + counts_itself(spread, constraints)
    within: Mask = (here - least <= spread.max_skew) & has_label(cluster, key, rows)
    return within
