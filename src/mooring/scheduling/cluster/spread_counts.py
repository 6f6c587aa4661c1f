"""Topology spread constraints: the tasks that they count, and the nodes that take part."""

from __future__ import annotations

import numpy as np

from mooring.model.labels import Operator, Requirement, Selector
from mooring.model.workloads.constraints import Constraints, Spread
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import ClusterColumns
from mooring.scheduling.cluster.node_matching import tolerated, wanted_nodes
from mooring.scheduling.cluster.placed_tasks import Matcher
from mooring.scheduling.cluster.topology_domains import has_label


def selector_of(spread: Spread, constraints: Constraints) -> Selector | None:
    """Return the constraint's selector, narrowed to the task's own values of `match_label_keys`."""
    if spread.selector is None or not spread.match_label_keys:
        return spread.selector
    labels = dict(constraints.labels)
    own = [Requirement(key, Operator.IN, (labels[key],)) for key in spread.match_label_keys if key in labels]
    return Selector((*spread.selector.requirements, *own))


def matcher_of_spread(spread: Spread, constraints: Constraints) -> Matcher:
    """Return the matcher of the tasks that count: same project, matching, and not about to end."""
    return Matcher(selector_of(spread, constraints), frozenset((constraints.project,)), staying=True)


def counts_itself(spread: Spread, constraints: Constraints) -> int:
    """Return 1 if the task to place counts itself, else 0."""
    selector = selector_of(spread, constraints)
    return int(selector is not None and selector.matches(dict(constraints.labels)))


def taking_part(spread: Spread, constraints: Constraints, cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that the constraint's inclusion policies allow to count."""
    mask = np.ones(len(rows), dtype=np.bool_)
    if spread.honor_node_affinity:
        mask &= wanted_nodes(constraints, cluster, rows)
    if spread.honor_node_taints:
        mask &= tolerated(constraints, cluster, rows)
    return mask


def labelled_for_all(spreads: tuple[Spread, ...], cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that have the topology label of every constraint."""
    mask = np.ones(len(rows), dtype=np.bool_)
    for spread in spreads:
        mask &= has_label(cluster, spread.topology_key, rows)
    return mask
