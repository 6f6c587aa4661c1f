"""Gaps: which booked rows are closed to work, so that the kernels, which do not look at time, can place it in a batch.

A row is closed where a task would last into what is promised of it and be too much beside that. Where it would not be
too much, so much may be placed before it is; a batch in which more comes is cut short, and looked at anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mooring.model.quantity import INT64_MAX
from mooring.model.slots import Amounts
from mooring.model.workloads import Workload
from mooring.scheduling.columns import Cluster
from mooring.scheduling.shapes import shape_of


class _Gap(NamedTuple):
    closed: tuple[int, ...]
    left: Amounts
    """What a batch may take in all until a row that is open to the work may have to be closed."""


class Gaps:
    """What one kind of work finds on the booked rows, as long as nothing in the cluster changes."""

    def __init__(self, cluster: Cluster, *, only_where_it_fits: bool) -> None:
        """`only_where_it_fits`: rows without room for a task now are closed to it whatever is promised of them."""
        self._cluster = cluster
        self._only_where_it_fits = only_where_it_fits
        self._known: dict[tuple[object, ...], _Gap] = {}
        self._added: dict[str, int] = {}

    def begin(self) -> None:
        """The batch was placed: the next one begins."""
        self._known, self._added = {}, {}

    def add(self, workload: Workload) -> None:
        """The workload is in the batch."""
        for name, amount in workload.request.items():
            self._added[name] = self._added.get(name, 0) + amount * len(workload.tasks)

    def closed_to(self, workload: Workload) -> tuple[int, ...] | None:
        """The rows that its tasks must keep off; None: that may change before all of them are placed."""
        gap, tasks = self._gap(workload), len(workload.tasks)
        if workload.single_node and (gap.closed or gap.left):
            return None
        for name, left in gap.left.items():
            if self._added.get(name, 0) + workload.request.get(name, 0) * tasks > left:
                return None
        return gap.closed

    def _gap(self, workload: Workload) -> _Gap:
        request = workload.request
        key = (workload.pool, workload.longest_seconds, *request, *request.values())
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look(workload)
        return known

    def _look(self, workload: Workload) -> _Gap:
        cluster, timeline = self._cluster, self._cluster.timeline
        demand = cluster.demand(shape_of(workload, cluster).request)
        rows = timeline.booked_rows
        rows = rows[cluster.pool[rows] == cluster.pools.code(workload.pool)]
        if self._only_where_it_fits:
            rows = rows[cluster.fits(demand, rows).all(axis=0)]
        if not len(rows):
            return _Gap((), {})
        seconds = workload.longest_seconds
        end = None if seconds is None else timeline.now + max(seconds, 1)
        surplus = timeline.surplus(rows, demand, timeline.now, end)
        beside = np.where(surplus > 0, cluster.free(demand, rows) - surplus, INT64_MAX)
        closed = (demand.amounts > beside).any(axis=0)
        least = beside[:, ~closed].min(axis=1, initial=INT64_MAX).tolist()
        left = {name: amount for name, amount in zip(demand.names, least, strict=True) if amount != INT64_MAX}
        return _Gap(tuple(rows[closed].tolist()), left)
