"""Node selectors, node affinity and tolerations, evaluated per distinct value of a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.labels import Operator, Requirement
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    NodeTerm,
    Taint,
    Toleration,
)
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.columns import ClusterColumns


def selected(constraints: Constraints, cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that match the node selector."""
    mask = np.ones(len(rows), dtype=np.bool_)
    for key, value in constraints.node_selector:
        mask &= satisfied(Requirement(key, Operator.IN, (value,)), cluster, rows)
    return mask


def matching_any(terms: Sequence[NodeTerm], cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that match at least one term; none without terms."""
    mask = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        mask |= matching(term, cluster, rows)
    return mask


def matching(term: NodeTerm, cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that satisfy every requirement. A term without any, or with an invalid one, matches none."""
    if term.problem is not None or not (term.labels or term.fields):
        return np.zeros(len(rows), dtype=np.bool_)
    mask = np.ones(len(rows), dtype=np.bool_)
    for requirement in (*term.labels, *term.fields):
        mask &= satisfied(requirement, cluster, rows)
    return mask


def satisfied(requirement: Requirement, cluster: ClusterColumns, rows: Rows) -> Mask:
    column = cluster.label(requirement.key)
    answer: Mask = column.truth(requirement)[column.codes[rows]]
    return answer


def wanted_nodes(constraints: Constraints, cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows that match the node selector and the required node affinity."""
    mask = selected(constraints, cluster, rows)
    if constraints.node_terms is not None:
        mask &= matching_any(constraints.node_terms, cluster, rows)
    return mask


HARD = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)


def untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Sequence[Effect]) -> list[Taint]:
    """Return the taints with these effects that no toleration covers."""
    return [
        taint
        for taint in taints
        if taint.effect in effects and not any(toleration.tolerates(taint) for toleration in tolerations)
    ]


def tolerated(constraints: Constraints, cluster: ClusterColumns, rows: Rows) -> Mask:
    """Return the rows whose NoSchedule and NoExecute taints are tolerated."""
    allowed = np.array(
        [not untolerated(taints, constraints.tolerations, HARD) for taints in cluster.taint_sets.values],
        dtype=np.bool_,
    )
    answer: Mask = allowed[cluster.taints[rows]]
    return answer
