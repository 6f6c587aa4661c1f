"""What the spread constraints of a task count: matching tasks per domain, on the nodes that take part."""

from __future__ import annotations

import numpy as np

from mooring.model.constraints import Constraints, Spread
from mooring.model.labels import Operator, Requirement, Selector
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.domains import has_label
from mooring.scheduling.node_terms import tolerated, wanted_nodes
from mooring.scheduling.placed import Matcher


def selector_of(spread: Spread, constraints: Constraints) -> Selector | None:
    """The constraint's selector, narrowed to the task's own values of `match_label_keys`."""
    if spread.selector is None or not spread.match_label_keys:
        return spread.selector
    labels = dict(constraints.labels)
    own = [Requirement(key, Operator.IN, (labels[key],)) for key in spread.match_label_keys if key in labels]
    return Selector((*spread.selector.requirements, *own))


def matcher_of_spread(spread: Spread, constraints: Constraints) -> Matcher:
    """The tasks that count: of the same project, matching, and not about to leave."""
    return Matcher(selector_of(spread, constraints), frozenset((constraints.project,)), staying=True)


def counts_itself(spread: Spread, constraints: Constraints) -> int:
    """1 if the task to place is one of those that are counted."""
    selector = selector_of(spread, constraints)
    return int(selector is not None and selector.matches(dict(constraints.labels)))


def taking_part(spread: Spread, constraints: Constraints, cluster: Cluster, rows: Rows) -> Mask:
    """The rows that the constraint's inclusion policies let count."""
    mask = np.ones(len(rows), dtype=np.bool_)
    if spread.honor_node_affinity:
        mask &= wanted_nodes(constraints, cluster, rows)
    if spread.honor_node_taints:
        mask &= tolerated(constraints, cluster, rows)
    return mask


def labelled_for_all(spreads: tuple[Spread, ...], cluster: Cluster, rows: Rows) -> Mask:
    """The rows that have the topology label of every constraint."""
    mask = np.ones(len(rows), dtype=np.bool_)
    for spread in spreads:
        mask &= has_label(cluster, spread.topology_key, rows)
    return mask
