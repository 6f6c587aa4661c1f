"""Concentrated and dispersed: what is left of the slots, compared one after the other in the order of their priority.

Both first follow what a task wishes about other tasks, then keep it off nodes with free slots that it does not ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.model.quantity import INT64_MAX
from mooring.scheduling.arrays import Amount
from mooring.scheduling.plugins import Candidates
from mooring.scheduling.scorers.unused_capability import unused_capabilities
from mooring.scheduling.selectors.wishes import wished

PRIORITY = ("cuda", "rocm", "tpu", "gpu", "cpu", "mem")
"""By the beginning of a slot's name (`cuda` means `cuda.device`); slots that are not listed follow by name."""


class Concentrated:
    """The fullest node: the least left of the slot that matters most. A slot that a node lacks counts as endless."""

    name = "concentrated"

    def __init__(self, priority: Sequence[str] = PRIORITY) -> None:
        self._priority = tuple(priority)

    def choose(self, candidates: Candidates) -> int:
        left = _left(candidates, self._priority, absent=INT64_MAX)
        return _first([-wished(candidates), _unused(candidates), *left])


class Dispersed:
    """The emptiest node: the most left of the slot that matters most. A slot that a node lacks counts as below none."""

    name = "dispersed"

    def __init__(self, priority: Sequence[str] = PRIORITY) -> None:
        self._priority = tuple(priority)

    def choose(self, candidates: Candidates) -> int:
        left = _left(candidates, self._priority, absent=-INT64_MAX)
        return _first([-wished(candidates), _unused(candidates), *(-amounts for amounts in left)])


def by_priority(names: Sequence[str], priority: Sequence[str]) -> list[str]:
    """Slot names in the order in which they are compared."""

    def place(name: str) -> tuple[int, str]:
        fitting = (number for number, start in enumerate(priority) if name.startswith(start))
        return next(fitting, len(priority)), name

    return sorted(names, key=place)


def _left(candidates: Candidates, priority: Sequence[str], *, absent: int) -> list[Amount]:
    """What is left of each requested slot before the placement, as one array per slot."""
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
    """The position with the smallest first key, then second, and so on; among equals the lowest name."""
    alive = np.arange(len(keys[0]))
    for key in keys:
        alive = alive[key[alive] == key[alive].min()]
    return int(alive[0])
