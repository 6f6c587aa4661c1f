"""Gangs: the capacity for tasks that are placed together, and the topology domains that keep them close."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mooring.model.workloads.workload import Workload
from mooring.scheduling.cluster.arrays import Amount, Mask, Rows
from mooring.scheduling.cluster.shapes import Shape, of_all, shape_of
from mooring.scheduling.cluster_state import Cluster
from mooring.scheduling.plugins.evaluation import Evaluation
from mooring.scheduling.plugins.filters.resources import ResourcesFilter
from mooring.scheduling.plugins.filters.tasks_per_node import TasksPerNodeFilter

_ENDLESS = 1 << 31
"""More tasks than any workload has, yet small enough to be summed over all nodes."""
DOMAINS_TRIED = 8
"""Maximum domains tried per level of a packed workload. Domains that are too small are excluded beforehand; other
obstacles are found only by trying."""


def shape_on_node(workload: Workload, cluster: Cluster, count: int) -> Shape:
    """Return the shape that a node has to fit: one task, or all `count` tasks of a single-node workload."""
    shape = shape_of(workload, cluster)
    return of_all(shape, count) if workload.single_node else shape


def tasks_that_fit(evaluation: Evaluation, own: Amount, max_per_node: int | None) -> Amount:
    """Return how many tasks of the shape each row could take by its slots; other filters can only lower this.

    The evaluation must be refreshed. `own` is the number of the workload's tasks on each row.
    """
    cluster, shape = evaluation.cluster, evaluation.shape
    result = np.zeros(cluster.capacity, dtype=np.int64)
    rows = evaluation.may_ever.nonzero()[0]
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
    """Yield the domains with capacity for `count` tasks, narrowest level first, and on each level the tightest first.

    Ties go to the domain with the node of highest precedence. Tasks that already have a node bind the others to its
    domain.
    """
    placed = np.flatnonzero(own)
    for codes in reversed(list(_levels(cluster, keys))):
        in_domain: Rows = np.flatnonzero(codes >= 0)
        if not len(in_domain):
            continue
        totals = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        np.add.at(totals, codes[in_domain], per_row[in_domain])
        first = np.full(len(totals), -1, dtype=np.int64)
        np.maximum.at(first, codes[in_domain], cluster.precedence[in_domain])
        holding = np.flatnonzero(totals >= count)
        if len(placed):
            holding = holding[np.isin(holding, codes[placed])] if len(set(codes[placed].tolist())) == 1 else holding[:0]
        for domain in holding[np.lexsort((-first[holding], totals[holding]))][:DOMAINS_TRIED].tolist():
            yield codes == domain


def common_domain(cluster: Cluster, keys: Sequence[str], rows: Sequence[int]) -> Mask | None:
    """Return the narrowest domain that contains all these rows; None if there is none."""
    for codes in reversed(list(_levels(cluster, keys))):
        found = set(codes[list(rows)].tolist())
        if len(found) == 1 and -1 not in found:
            domain: Mask = codes == found.pop()
            return domain
    return None


def _levels(cluster: Cluster, keys: Sequence[str]) -> Iterator[NDArray[np.int64]]:
    """Yield per level the domain of every row, -1 for none. Levels are nested: a rack is identified within its zone."""
    codes = np.where(cluster.pool >= 0, 0, -1)
    for key in keys:
        labels, size = cluster.domains(key)
        joined = np.where((codes >= 0) & (labels >= 0), codes * max(size, 1) + labels, -1)
        values, numbers = np.unique(joined, return_inverse=True)
        codes = numbers - (1 if values[0] == -1 else 0)
        yield codes
