"""Tasks that belong together: how many must find a node at once, whether there can be room, and how near they get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Amount, Mask, Rows
from mooring.scheduling.columns import Cluster
from mooring.scheduling.evaluation import Evaluation
from mooring.scheduling.filters.resources import ResourcesFilter
from mooring.scheduling.filters.tasks_per_node import TasksPerNodeFilter
from mooring.scheduling.shapes import Shape, of_all, shape_of

_ENDLESS = 1 << 31
"""More tasks than any workload has, and few enough to be summed over all nodes."""
DOMAINS_TRIED = 8
"""Of each level of a packed workload: that a domain may be too small is seen beforehand, other obstacles are not."""


def shape_on_node(workload: Workload, cluster: Cluster, count: int) -> Shape:
    """What a node is asked to take: one task, or all `count` of a workload that stays on one node."""
    shape = shape_of(workload, cluster)
    return of_all(shape, count) if workload.single_node else shape


def room(evaluation: Evaluation, own: Amount, max_per_node: int | None) -> Amount:
    """How many tasks of the shape every row could take by its slots; what else is asked only lowers it.

    The evaluation is refreshed. `own` tells how many tasks of the workload a row has.
    """
    cluster, shape = evaluation.cluster, evaluation.shape
    result = np.zeros(cluster.capacity, dtype=np.int64)
    rows = np.flatnonzero(evaluation.may_ever)
    fitting = np.full(len(rows), _ENDLESS, dtype=np.int64)
    for plugin in evaluation.active.filters:
        if isinstance(plugin, ResourcesFilter):
            demand = plugin.demand(shape, cluster)
            free = cluster.free(demand, rows)
            unasked = np.where(free < 0, 0, _ENDLESS)
            times = np.where(demand.amounts > 0, free // np.maximum(demand.amounts, 1), unasked)
            fitting = np.minimum(fitting, times.min(axis=0, initial=_ENDLESS))
        elif isinstance(plugin, TasksPerNodeFilter):
            fitting = np.minimum(fitting, cluster.max_tasks[rows] - cluster.tasks[rows])
    if max_per_node is not None:
        fitting = np.minimum(fitting, max_per_node - own[rows])
    result[rows] = np.maximum(fitting, 0)
    return result


def domains_by_fit(cluster: Cluster, keys: Sequence[str], per_row: Amount, own: Amount, count: int) -> Iterator[Mask]:
    """The domains with room for `count` tasks, narrowest level first, on each the tightest first.

    Where domains have the same room, the one with the lowest name of a node comes first. Tasks that have a node bind
    the others to its domain.
    """
    placed = np.flatnonzero(own)
    for codes in reversed(list(_levels(cluster, keys))):
        inside: Rows = np.flatnonzero(codes >= 0)
        if not len(inside):
            continue
        totals = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        np.add.at(totals, codes[inside], per_row[inside])
        first = np.full(len(totals), -1, dtype=np.int64)
        np.maximum.at(first, codes[inside], cluster.precedence[inside])
        holding = np.flatnonzero(totals >= count)
        if len(placed):
            holding = holding[np.isin(holding, codes[placed])] if len(set(codes[placed].tolist())) == 1 else holding[:0]
        for domain in holding[np.lexsort((-first[holding], totals[holding]))][:DOMAINS_TRIED].tolist():
            yield codes == domain


def common_domain(cluster: Cluster, keys: Sequence[str], rows: Sequence[int]) -> Mask | None:
    """The narrowest domain that all these rows are in."""
    for codes in reversed(list(_levels(cluster, keys))):
        found = set(codes[list(rows)].tolist())
        if len(found) == 1 and -1 not in found:
            inside: Mask = codes == found.pop()
            return inside
    return None


def _levels(cluster: Cluster, keys: Sequence[str]) -> Iterator[NDArray[np.int64]]:
    """Per level the domain of every row, -1 for none: a rack is one only within its zone."""
    codes = np.where(cluster.pool >= 0, 0, -1)
    for key in keys:
        labels, size = cluster.domains(key)
        joined = np.where((codes >= 0) & (labels >= 0), codes * max(size, 1) + labels, -1)
        values, numbers = np.unique(joined, return_inverse=True)
        codes = numbers - (1 if values[0] == -1 else 0)
        yield codes
