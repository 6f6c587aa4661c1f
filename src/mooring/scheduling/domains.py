"""Counting by topology domain: all nodes that have the same value of a label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mooring.model.constraints import NODE_NAME_FIELD
from mooring.model.nodes import Node
from mooring.scheduling.arrays import Mask, Rows, Scores
from mooring.scheduling.columns import Cluster
from mooring.scheduling.placed import Counts


def domain_totals(cluster: Cluster, key: str, counts: Counts, rows: Rows | None = None) -> Scores:
    """The sum of `counts` per domain, over all rows or over the given ones."""
    codes, number = cluster.domains(key)
    if rows is not None:
        codes, counts = codes[rows], counts[rows]
    inside = codes >= 0
    totals: Scores = np.bincount(codes[inside], weights=counts[inside], minlength=number).astype(np.int64)
    return totals


def of_domain(cluster: Cluster, key: str, totals: Scores, rows: Rows) -> Scores:
    """Each row's domain total; 0 for rows without the label."""
    codes = cluster.domains(key)[0][rows]
    padded = np.append(totals, 0)
    answer: Scores = padded[codes]
    return answer


def has_label(cluster: Cluster, key: str, rows: Rows) -> Mask:
    codes: NDArray[np.int32] = cluster.domains(key)[0][rows]
    answer: Mask = codes >= 0
    return answer


def domain_of(node: Node | None, key: str) -> str | None:
    """The domain that a node belongs to by itself; None if it has no such label, or is not there."""
    if node is None:
        return None
    return node.name if key == NODE_NAME_FIELD else node.labels.get(key)
