"""The highest score, with a choice of tie-breakers among equals or among the best few."""

from __future__ import annotations

from enum import StrEnum
from random import Random

import numpy as np

from mooring.model.errors import InvalidInput
from mooring.scheduling.cluster.arrays import Amount
from mooring.scheduling.cluster.placed_tasks import matcher_of
from mooring.scheduling.cluster.topology_domains import domain_totals, of_domain
from mooring.scheduling.plugins.protocols import Candidates


class Ties(StrEnum):
    NAME = "name"
    RANDOM = "random"
    LEAST_LOADED = "least_loaded"
    ROUND_ROBIN = "round_robin"
    WEIGHTED_RANDOM = "weighted_random"
    AFFINITY_BASED = "affinity_based"


class HighestScore:
    """`ties` decides among the nodes with the highest score or, with `top`, among that many of the best.

    `last` is the name that round robin chose last; save and pass it to continue after a restart.
    """

    name = "highest"

    def __init__(self, ties: Ties | str = Ties.NAME, *, top: int | None = None, seed: int = 0, last: str = "") -> None:
        if ties not in set(Ties):
            raise InvalidInput(f"there is no tie breaker {ties!r}; known are {', '.join(Ties)}", code="unknown-ties")
        if top is not None and top < 1:
            raise InvalidInput(f"top is {top}; it must be at least 1", code="invalid-profile")
        self.ties = Ties(ties)
        self.last = last
        self._top = top
        self._random = Random(seed)

    def choose(self, candidates: Candidates) -> int:
        scores = candidates.scores
        number = int((scores == scores[0]).sum()) if self._top is None else min(self._top, len(scores))
        match self.ties:
            case Ties.NAME:
                return 0
            case Ties.RANDOM:
                return self._random.randrange(number)
            case Ties.WEIGHTED_RANDOM:
                return self._by_score(scores[:number].tolist())
            case Ties.ROUND_ROBIN:
                return self._round_robin(candidates, number)
            case Ties.LEAST_LOADED:
                return _first(candidates, *(-key for key in _load(candidates, number)))
            case Ties.AFFINITY_BASED:
                own = candidates.own[candidates.rows[:number]]
                return _first(candidates, _wanted_beside(candidates, number), own)

    def _by_score(self, scores: list[int]) -> int:
        if not any(scores):
            return self._random.randrange(len(scores))
        return self._random.choices(range(len(scores)), weights=scores)[0]

    def _round_robin(self, candidates: Candidates, number: int) -> int:
        names = [candidates.cluster.node(row).name for row in candidates.rows[:number].tolist()]
        later = [name for name in names if name > self.last]
        self.last = min(later or names)
        return names.index(self.last)


def _load(candidates: Candidates, number: int) -> tuple[Amount, Amount]:
    """Return the sort keys: measured load first, then the number of tasks."""
    cluster, rows = candidates.cluster, candidates.rows[:number]
    return cluster.cpu_load[rows] + cluster.memory_load[rows], cluster.tasks[rows]


def _wanted_beside(candidates: Candidates, number: int) -> Amount:
    """Return the number of running tasks that match the preferred task affinity."""
    constraints, cluster, rows = candidates.shape.constraints, candidates.cluster, candidates.rows[:number]
    matching_tasks = np.zeros(number, dtype=np.int64)
    for preference in constraints.preferred_tasks:
        if preference.weight > 0:
            counts = cluster.placed_tasks.counts(matcher_of(preference.term, constraints.project))
            totals = domain_totals(cluster, preference.term.topology_key, counts)
            matching_tasks += of_domain(cluster, preference.term.topology_key, totals, rows)
    return matching_tasks


def _first(candidates: Candidates, *keys: Amount) -> int:
    """Return the position with the largest first key, then second; among equals the lowest name."""
    alive = np.arange(len(keys[0]))
    for key in (*keys, candidates.cluster.precedence[candidates.rows[: len(alive)]]):
        alive = alive[key[alive] == key[alive].max()]
    return int(alive[0])
