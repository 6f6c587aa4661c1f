"""Counts by topology domain: all nodes with the same value of a label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mooring.model.nodes.node import Node
from mooring.model.workloads.constraints import NODE_NAME_FIELD
from mooring.scheduling.cluster.arrays import Mask, Rows, Scores
from mooring.scheduling.cluster.columns import ClusterColumns
from mooring.scheduling.cluster.placed_tasks import Counts


def domain_totals(cluster: ClusterColumns, key: str, counts: Counts, rows: Rows | None = None) -> Scores:
    """Return the sum of `counts` per domain, over all rows or over the given ones."""
    codes, number = cluster.domains(key)
    if rows is not None:
        codes, counts = codes[rows], counts[rows]
    labelled = codes >= 0
    totals: Scores = np.bincount(codes[labelled], weights=counts[labelled], minlength=number).astype(np.int64)
    return totals


def of_domain(cluster: ClusterColumns, key: str, totals: Scores, rows: Rows) -> Scores:
    """Return the total of each row's domain; 0 for rows without the label."""
    codes = cluster.domains(key)[0][rows]
    padded = np.append(totals, 0)
    answer: Scores = padded[codes]
    return answer


def has_label(cluster: ClusterColumns, key: str, rows: Rows) -> Mask:
    codes: NDArray[np.int32] = cluster.domains(key)[0][rows]
    answer: Mask = codes >= 0
    return answer


def domain_of(node: Node | None, key: str) -> str | None:
    """Return the domain of a node; None without the label or the node."""
    if node is None:
        return None
    return node.name if key == NODE_NAME_FIELD else node.labels.get(key)
