"""How to cover many tasks of few kinds with nodes at least cost: patterns, each what one node of a template holds.

How often each pattern is used is a linear programme. It begins with one pattern per kind; prices tell what the tasks of
each kind cost in its present answer, and patterns that are worth more than their node at these prices are added until
none is found. Whole nodes are kept of the answer, and what is left over is covered pattern by pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Whole: TypeAlias = NDArray[np.int64]
Real: TypeAlias = NDArray[np.float64]

_ROUNDS = 200
"""Of adding patterns; the answer is good long before."""
_PIVOTS = 400
"""Within a round."""
_FRESH = 64
"""Pivots after which the inverse is made anew, since errors add up."""
_SMALL = 1e-9
_GAIN = 1e-4
"""A pattern that saves less than this part of its cost is not worth a further round."""
_KINDS = 96
"""The programme gets slow beyond: kinds that differ little are taken as one."""
_ENDLESS = np.int64(1) << 40


class Pattern(NamedTuple):
    """What one node of a template holds: so many tasks of each kind."""

    template: int
    counts: Whole
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Covering:
    """Kinds of tasks and templates; amounts along the last axis, all in the same units."""

    requests: Whole
    """[kind, slot]"""
    capacity: Whole
    """[template, slot]"""
    allowed: NDArray[np.bool_]
    """[kind, template]: whether an empty node of the template takes a task of the kind."""
    cost: Whole
    """[template]"""

    @property
    def alone(self) -> Whole:
        """How many tasks of a kind one node of a template holds if it holds no others, as [kind, template]."""
        return np.where(self.allowed, _times(self.capacity[None], self.requests[:, None]), 0)


Pricing: TypeAlias = Callable[[Covering, Whole, Real], tuple[Whole, Whole]]
"""Templates and counts of patterns with at most so many tasks of each kind that are worth much at given prices."""


def cover(covering: Covering, demand: Whole) -> list[Pattern]:
    """Patterns that hold exactly so many tasks of every kind; each kind fits some template."""
    programme = Programme(covering, demand)
    programme.solve(valuable)
    chosen: list[Pattern] = []
    left = demand.copy()
    for template, counts, times in programme.answer():
        nodes = int(times + _SMALL)
        if nodes:
            used = np.minimum(counts * nodes, left)
            chosen += _exactly(template, counts, nodes, used)
            left -= used
    prices = programme.prices.clip(min=0.0)
    while left.any():
        templates, patterns = valuable(covering, left, prices)
        best = int(np.argmax((patterns @ prices + _SMALL * patterns.sum(axis=1)) / covering.cost[templates]))
        counts = patterns[best]
        held = counts > 0
        nodes = int((left[held] // counts[held]).min())
        chosen.append(Pattern(int(templates[best]), counts, nodes))
        left -= counts * nodes
    return chosen


class Programme:
    """The linear programme over the patterns known so far, solved by the primal simplex method.

    The first columns are tasks too many of each kind, which cost nothing; then patterns of one kind each follow.
    """

    def __init__(self, covering: Covering, demand: Whole) -> None:
        self.covering = covering
        self.demand = demand
        kinds = len(demand)
        alone = np.minimum(covering.alone, demand[:, None])
        each = np.where(alone > 0, covering.cost / np.maximum(alone, 1), np.inf)
        cheapest = each.argmin(axis=1)
        first = np.diag(alone[np.arange(kinds), cheapest])
        self._columns: Real = np.hstack((-np.eye(kinds), first))
        self._costs: Real = np.concatenate((np.zeros(kinds), covering.cost[cheapest]))
        self._templates: Whole = np.concatenate((np.full(kinds, -1), cheapest))
        self._basis = np.arange(kinds, 2 * kinds)
        self._inverse: Real
        self._level: Real
        self._renew()

    @property
    def prices(self) -> Real:
        """What one more task of each kind would cost."""
        return self._costs[self._basis] @ self._inverse

    @property
    def value(self) -> float:
        return float(self._costs[self._basis] @ self._level)

    def answer(self) -> list[tuple[int, Whole, float]]:
        """Template, counts and number of the patterns in use."""
        return [
            (int(self._templates[column]), self._columns[:, column].round().astype(np.int64), float(level))
            for column, level in zip(self._basis.tolist(), self._level.tolist(), strict=True)
            if column >= len(self.demand) and level > _SMALL
        ]

    def solve(self, pricing: Pricing) -> None:
        """Add patterns until pricing finds none that would save anything."""
        for _ in range(_ROUNDS):
            if not self.improve(*pricing(self.covering, self.demand, self.prices.clip(min=0.0))):
                return

    def improve(self, templates: Whole, patterns: Whole) -> bool:
        """Take in those patterns that save something; False if none does."""
        worth = patterns @ self.prices / self.covering.cost[templates]
        order = np.argsort(-worth, kind="stable")
        # The best of each template: more would slow down every step and hardly be used.
        best = order[np.unique(templates[order], return_index=True)[1]]
        saving = best[worth[best] > 1 + _GAIN]
        if not len(saving):
            return False
        self._columns = np.hstack((self._columns, patterns[saving].T))
        self._costs = np.concatenate((self._costs, self.covering.cost[templates[saving]]))
        self._templates = np.concatenate((self._templates, templates[saving]))
        self._pivot()
        return True

    def _pivot(self) -> None:
        for pivot in range(_PIVOTS):
            reduced = self._costs - self.prices @ self._columns
            entering = int(reduced.argmin())
            if reduced[entering] > -_SMALL * max(self._costs[entering], 1.0):
                return
            direction = self._inverse @ self._columns[:, entering]
            bounded = direction > _SMALL
            if not bounded.any():
                return
            steps = np.full(len(direction), np.inf)
            steps[bounded] = self._level[bounded] / direction[bounded]
            leaving = int(steps.argmin())
            self._basis[leaving] = entering
            if pivot % _FRESH == _FRESH - 1:
                self._renew()
                continue
            row = self._inverse[leaving] / direction[leaving]
            self._inverse -= np.outer(direction, row)
            self._inverse[leaving] = row
            self._level = (self._level - direction * steps[leaving]).clip(min=0.0)
            self._level[leaving] = steps[leaving]

    def _renew(self) -> None:
        self._inverse = np.linalg.inv(self._columns[:, self._basis]).astype(np.float64)
        self._level = (self._inverse @ self.demand).clip(min=0.0)


def valuable(covering: Covering, most: Whole, prices: Real) -> tuple[Whole, Whole]:
    """Per template some patterns, each filled with the kinds that bring the most for what they take of what is left.

    What they take is weighed in several ways: by each slot alone, by all alike, and by all with one before the others.
    """
    kinds, slots = covering.requests.shape
    templates = np.repeat(np.arange(len(covering.capacity)), 2 * slots + 1)
    each, alike = np.eye(slots), np.ones((1, slots))
    weights = np.tile(np.vstack((each, alike, alike + 3 * each)), (len(covering.capacity), 1))
    left = covering.capacity[templates]
    limits = np.where(covering.allowed.T, most, 0)[templates]
    counts = np.zeros((len(templates), kinds), dtype=np.int64)
    every = np.arange(len(templates))
    requests = covering.requests.astype(np.float64).T
    while True:
        taking = (weights / np.maximum(left, 0.5)) @ requests
        fitting = (left[:, None] >= covering.requests).all(axis=2) & (counts < limits)
        density = np.where(fitting, prices / np.maximum(taking, _SMALL), -1.0)
        kind = density.argmax(axis=1)
        number = np.minimum(_times(left, covering.requests[kind]), (limits - counts)[every, kind])
        # Half of what would fit: what the rest is weighed by moves with what is left.
        number = np.where(density[every, kind] >= 0, (number + 1) // 2, 0)
        if not number.any():
            return templates, counts
        counts[every, kind] += number
        left -= number[:, None] * covering.requests[kind]


def similar(covering: Covering, demand: Whole) -> tuple[Whole, Covering, Whole]:
    """Few classes of many kinds: the class of each kind, the covering by the classes, and how many tasks each has.

    A class asks for the most that its kinds ask for, so that any of its tasks can stand for another.

    Kinds of one class go to the same templates, and the class that differs the most within itself is split first.
    """
    kinds = len(demand)
    if kinds <= _KINDS:
        return np.arange(kinds), covering, demand
    shares = covering.requests / np.maximum(covering.capacity.max(axis=0), 1)
    _, classes = np.unique(covering.allowed, axis=0, return_inverse=True)
    members = [np.flatnonzero(classes == number) for number in range(int(classes.max()) + 1)]
    widths = [_width(shares, demand, of_class) for of_class in members]
    while len(members) < _KINDS and max(widths) > 0:
        widest = int(np.argmax(widths))
        halves = _halves(shares, demand, members[widest])
        members[widest : widest + 1] = halves
        widths[widest : widest + 1] = [_width(shares, demand, half) for half in halves]
    for number, of_class in enumerate(members):
        classes[of_class] = number
    sizes = np.array([demand[of_class].sum() for of_class in members])
    largest = np.array([covering.requests[of_class].max(axis=0) for of_class in members])
    allowed = np.array([covering.allowed[of_class[0]] for of_class in members])
    return classes.reshape(-1), Covering(largest, covering.capacity, allowed, covering.cost), sizes


def _width(shares: Real, demand: Whole, members: NDArray[np.intp]) -> float:
    """How much the kinds of a class differ, by how many tasks they have."""
    return float(np.ptp(shares[members], axis=0).max() * demand[members].sum())


def _halves(shares: Real, demand: Whole, members: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """A class split in the middle of its tasks, along the slot in which its kinds differ the most."""
    slot = int(np.ptp(shares[members], axis=0).argmax())
    ordered = members[np.argsort(shares[members, slot], kind="stable")]
    before = np.cumsum(demand[ordered])
    middle = int(np.searchsorted(before, before[-1] / 2)) + 1
    middle = min(middle, len(ordered) - 1)
    return [ordered[:middle], ordered[middle:]]


def _times(capacity: Whole, requests: Whole) -> Whole:
    """How often requests fit into capacities, slot by slot along the last axis."""
    times: Whole = np.where(requests > 0, capacity // np.maximum(requests, 1), _ENDLESS).min(axis=-1)
    return times


def _exactly(template: int, counts: Whole, nodes: int, used: Whole) -> list[Pattern]:
    """So many nodes of a pattern, the last of them with fewer tasks where that many are not there."""
    if (used == counts * nodes).all():
        return [Pattern(template, counts, nodes)]
    patterns: list[Pattern] = []
    for _ in range(nodes):
        held = np.minimum(counts, used)
        if held.any():
            patterns.append(Pattern(template, held))
        used = used - held
    return patterns
