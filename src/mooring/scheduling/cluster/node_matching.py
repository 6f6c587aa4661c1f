"""Which nodes the selector and the affinity terms of a task mean, answered per distinct value of a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.constraints import Constraints, Effect, NodeTerm, Taint, Toleration
from mooring.model.labels import Operator, Requirement
from mooring.scheduling.arrays import Mask, Rows
from mooring.scheduling.columns import NODE_NAME, Cluster


def selected(constraints: Constraints, cluster: Cluster, rows: Rows) -> Mask:
    """The rows whose labels are those of the node selector."""
    mask = np.ones(len(rows), dtype=np.bool_)
    for key, value in constraints.node_selector:
        mask &= satisfied(Requirement(key, Operator.IN, (value,)), cluster, rows)
    return mask


def matching_any(terms: Sequence[NodeTerm], cluster: Cluster, rows: Rows) -> Mask:
    """The rows that at least one term matches; without terms none."""
    mask = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        mask |= matching(term, cluster, rows)
    return mask


def matching(term: NodeTerm, cluster: Cluster, rows: Rows) -> Mask:
    """The rows that satisfy every requirement; a term without any, or with a wrong one, matches none."""
    if term.problem is not None or not (term.labels or term.fields):
        return np.zeros(len(rows), dtype=np.bool_)
    mask = np.ones(len(rows), dtype=np.bool_)
    for requirement in (*term.labels, *term.fields):
        mask &= satisfied(requirement, cluster, rows)
    return mask


def satisfied(requirement: Requirement, cluster: Cluster, rows: Rows) -> Mask:
    column = cluster.label(requirement.key)
    answer: Mask = column.truth(requirement)[column.codes[rows]]
    return answer


def wanted_nodes(constraints: Constraints, cluster: Cluster, rows: Rows) -> Mask:
    """The rows that node selector and required node affinity allow."""
    mask = selected(constraints, cluster, rows)
    if constraints.node_terms is not None:
        mask &= matching_any(constraints.node_terms, cluster, rows)
    return mask


def candidate_names(terms: Sequence[NodeTerm] | None) -> frozenset[str] | None:
    """The only node names that can match the terms; None if they do not say."""
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        named = [
            frozenset(field.values) for field in term.fields if field.key == NODE_NAME and field.operator is Operator.IN
        ]
        if not named:
            return None
        names |= frozenset.intersection(*named)
    return frozenset(names)


HARD = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Sequence[Effect]) -> list[Taint]:
    """The taints of these effects that no toleration covers."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations)
    ]


def tolerated(constraints: Constraints, cluster: Cluster, rows: Rows) -> Mask:
    """The rows without a taint that keeps the task away."""
    allowed = np.array(
        [not untolerated(taints, constraints.tolerations, HARD) for taints in cluster.taint_sets.values],
        dtype=np.bool_,
    )
    answer: Mask = allowed[cluster.taints[rows]]
    return answer
