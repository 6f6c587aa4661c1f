"""Concentrated and dispersed: free amounts of the slots, compared one after the other in the order of their priority.

Both first follow the task's preferences about other tasks, then avoid nodes with free slots that it does not request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.resources.quantity import INT64_MAX
from mooring.scheduling.cluster.arrays import Amount
from mooring.scheduling.plugins.protocols import Candidates
from mooring.scheduling.plugins.scorers.unused_capability import unused_capabilities
from mooring.scheduling.plugins.selectors.soft_constraints import soft_constraint_scores

PRIORITY = ("cuda", "rocm", "tpu", "gpu", "cpu", "mem")
"""Prefixes of slot names (`cuda` matches `cuda.device`); slots that are not listed follow by name."""


class Concentrated:
    """The fullest node: the least free of the slot with the highest priority. A missing slot counts as unlimited."""

    name = "concentrated"

    def __init__(self, priority: Sequence[str] = PRIORITY) -> None:
        self._priority = tuple(priority)

    def choose(self, candidates: Candidates) -> int:
        left = _left(candidates, self._priority, absent=INT64_MAX)
        return _first([-soft_constraint_scores(candidates), _unused(candidates), *left])


class Dispersed:
    """The emptiest node: the most free of the slot with the highest priority. A missing slot counts as negative."""

    name = "dispersed"

    def __init__(self, priority: Sequence[str] = PRIORITY) -> None:
        self._priority = tuple(priority)

    def choose(self, candidates: Candidates) -> int:
        left = _left(candidates, self._priority, absent=-INT64_MAX)
        return _first([-soft_constraint_scores(candidates), _unused(candidates), *(-amounts for amounts in left)])


def by_priority(names: Sequence[str], priority: Sequence[str]) -> list[str]:
    """Return slot names in the order in which they are compared."""

    def rank(name: str) -> tuple[int, str]:
        fitting = (number for number, start in enumerate(priority) if name.startswith(start))
        return next(fitting, len(priority)), name

    return sorted(names, key=rank)


def _left(candidates: Candidates, priority: Sequence[str], *, absent: int) -> list[Amount]:
    """Return the free amount of each requested slot before the placement, one array per slot."""
    cluster, rows = candidates.cluster, candidates.rows
    result = []
    for name in by_priority([name for name, _ in candidates.shape.request], priority):
        slot = int(cluster.demand(((name, 0),)).slots[0, 0])
        free = cluster.allocatable[slot, rows] - cluster.taken[slot, rows]
        result.append(np.where(cluster.allocatable[slot, rows] > 0, free, absent))
    return result


def _unused(candidates: Candidates) -> Amount:
    return unused_capabilities(candidates.shape, candidates.cluster, candidates.rows)


def _first(keys: Sequence[Amount]) -> int:
    """Return the position with the smallest first key, then second, and so on; among equals the lowest name."""
    alive = np.arange(len(keys[0]))
    for key in keys:
        alive = alive[key[alive] == key[alive].min()]
    return int(alive[0])
