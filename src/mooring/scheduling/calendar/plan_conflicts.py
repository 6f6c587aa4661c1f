"""Plan conflicts: the rows on which work would violate constraints between its tasks and those of a planned start.

A planned start counts in the topology domains of its nodes. Work that would still be running then avoids a domain if
either of the two has anti-affinity to the other, or if a hard spread of the planned tasks counts it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mooring.model.workloads.constraints import Constraints
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.cluster.arrays import Mask, Rows
from mooring.scheduling.cluster.placed_tasks import matcher_of
from mooring.scheduling.cluster.spread_counts import matcher_of_spread
from mooring.scheduling.cluster_state import Cluster


def may_conflict(cluster: Cluster, constraints: Constraints) -> bool:
    """Return whether work with these constraints may conflict with a planned start beyond its demand on a node."""
    timeline = cluster.timeline
    return timeline.planned_exclusive > 0 or (timeline.planned_count > 0 and bool(constraints.anti_affinity))


def closed_to(cluster: Cluster, constraints: Constraints, seconds: int | None) -> Rows:
    """Return the rows on which work that starts now for `seconds` (None: open) conflicts with a planned start."""
    timeline = cluster.timeline
    end = NEVER if seconds is None else timeline.now + max(seconds, 1)
    closed: Mask = np.zeros(cluster.capacity, dtype=np.bool_)
    for each in timeline.planned:
        if each.start is None or each.footprint is None or not timeline.now < each.start < end:
            continue
        planned = each.footprint.constraints
        for key in () if planned is None else _separating_keys(cluster, planned, constraints):
            codes = cluster.domains(key)[0]
            if codes[each.row] >= 0:
                closed |= codes == codes[each.row]
    return np.flatnonzero(closed)


def _separating_keys(cluster: Cluster, planned: Constraints, other: Constraints) -> Iterator[str]:
    """Yield the topology keys by which other work must be in a different domain than the planned work."""
    matches = cluster.placed_tasks.matches
    for term in planned.anti_affinity:
        if matches(matcher_of(term, planned.project), other):
            yield term.topology_key
    for term in other.anti_affinity:
        if matches(matcher_of(term, other.project), planned):
            yield term.topology_key
    for spread in planned.spread:
        if spread.hard and matches(matcher_of_spread(spread, planned), other):
            yield spread.topology_key
