"""Booking mask: the booked rows that are closed to work, so that the kernels, which ignore time, can place batches.

A row is closed if a task would run into a promise on it and not fit next to it. Other booked rows accept a limited
amount until they have to be closed; a batch that exceeds it is cut short, and the rows are checked again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mooring.model.resources.quantity import INT64_MAX
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.plan_conflicts import closed_to, may_conflict
from mooring.scheduling.cluster.shapes import shape_of
from mooring.scheduling.cluster_state import Cluster


class _Mask(NamedTuple):
    closed: tuple[int, ...]
    left: Amounts
    """The amounts that a batch may take in total before a row open to the work may have to be closed."""


class BookingMask:
    """The closed rows by kind of work, valid as long as nothing in the cluster changes."""

    def __init__(self, cluster: Cluster, *, only_where_it_fits: bool) -> None:
        """`only_where_it_fits`: skip rows without capacity for a task now, whatever is promised on them."""
        self._cluster = cluster
        self._only_where_it_fits = only_where_it_fits
        self._known: dict[tuple[object, ...], _Mask] = {}
        self._added: dict[str, int] = {}
        self._pairwise = cluster.timeline.planned_exclusive > 0
        """Work may conflict with a planned start regardless of its own constraints."""

    def begin(self) -> None:
        """Begin the next batch; the last one has been placed."""
        self._known, self._added = {}, {}

    def add(self, workload: Workload) -> None:
        """Count the workload as part of the batch."""
        for name, amount in workload.request.items():
            self._added[name] = self._added.get(name, 0) + amount * len(workload.tasks)

    def closed_to(self, workload: Workload) -> tuple[int, ...] | None:
        """Return the rows closed to the workload; None if they may change before all of its tasks are placed."""
        mask, tasks = self._mask(workload), len(workload.tasks)
        if workload.single_node and (mask.closed or mask.left):
            return None
        for name, left in mask.left.items():
            if self._added.get(name, 0) + workload.request.get(name, 0) * tasks > left:
                return None
        return mask.closed

    def _mask(self, workload: Workload) -> _Mask:
        request, constraints = workload.request, workload.constraints
        notice = self._cluster.timeline.notice(workload)
        seconds = workload.gap_seconds, workload.longest_seconds
        key: tuple[object, ...] = (workload.pool, *seconds, notice, *request, *request.values())
        if self._pairwise or constraints.anti_affinity:
            key = (*key, constraints)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._look(workload)
        return known

    def _look(self, workload: Workload) -> _Mask:
        cluster, timeline = self._cluster, self._cluster.timeline
        demand = cluster.demand(shape_of(workload, cluster).request)
        rows = timeline.booked_rows
        rows = rows[cluster.pool[rows] == cluster.pools.code(workload.pool)]
        if self._only_where_it_fits:
            rows = rows[cluster.fits(demand, rows).all(axis=0)]
        excluded: tuple[int, ...] = ()
        if may_conflict(cluster, workload.constraints):
            excluded = tuple(closed_to(cluster, workload.constraints, workload.gap_seconds).tolist())
        if not len(rows):
            return _Mask(excluded, {})
        surplus = timeline.surplus_for(workload, rows, demand)
        left_for_it = np.where(surplus > 0, cluster.free(demand, rows) - surplus, INT64_MAX)
        closed = (demand.amounts > left_for_it).any(axis=0)
        least = left_for_it[:, ~closed].min(axis=1, initial=INT64_MAX).tolist()
        left = {name: amount for name, amount in zip(demand.names, least, strict=True) if amount != INT64_MAX}
        return _Mask(tuple(sorted({*rows[closed].tolist(), *excluded})), left)
