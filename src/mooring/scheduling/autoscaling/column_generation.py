"""Column generation: covers many tasks of few kinds with nodes at the least cost.

A pattern is the set of tasks that one node of a template holds. A linear programme determines the number of nodes per
pattern. It begins with one pattern per kind. The prices (dual values) give the cost of a task of each kind in the
current solution, and patterns that are worth more than their node at these prices are added until none is found. The
solution is rounded down to whole nodes, and the remaining tasks are covered pattern by pattern. Prices also prove a
lower bound on the cost of every packing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mooring.scheduling.solver import INFINITY, LinearProgramme, PatternSearch, Real, Whole

_ROUNDS = 200
"""Maximum rounds of adding patterns; the solution is good long before."""
_BOUND_ROUNDS = 8
"""Maximum rounds of adding the best patterns of the exact search, which tighten the bound."""
_CLOSE = 0.99
"""A bound of this part of the solution's cost is good enough."""
_SMALL = 1e-9
_GAIN = 1e-4
"""A pattern that saves less than this fraction of its cost is not worth another round."""
_KINDS = 96
"""Maximum number of kinds. Beyond it the programme is slow, so similar kinds are merged."""
_ENDLESS = np.int64(1) << 40


class Pattern(NamedTuple):
    """The number of tasks of each kind that one node of a template holds."""

    template: int
    counts: Whole
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Covering:
    """A covering problem: kinds of tasks and templates, with amounts along the last axis in the same units."""

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
        """The number of tasks of one kind alone that a node of a template holds, as [kind, template]."""
        return np.where(self.allowed, _times(self.capacity[None], self.requests[:, None]), 0)


Pricing: TypeAlias = Callable[[Covering, Whole, Real], tuple[Whole, Whole]]
"""Returns the templates and counts of valuable patterns at given prices, with a maximum number of tasks per kind."""


class Cover(NamedTuple):
    """Patterns that hold all tasks, and a proven lower bound of the cost of any patterns that do."""

    patterns: list[Pattern]
    bound: float


def cover(covering: Covering, demand: Whole) -> Cover:
    """Return patterns that hold exactly `demand` tasks of every kind. Each kind must fit some template.

    Many kinds are merged for the packing, but not for the bound.
    """
    _, merged, sizes = similar(covering, demand)
    programme = Programme(merged, sizes)
    programme.solve(valuable)
    bound = programme.bound() if len(sizes) == len(demand) else _bound_of_merged(covering, demand)
    chosen: list[Pattern] = []
    left = sizes.copy()
    for template, counts, times in programme.answer():
        nodes = int(times + _SMALL)
        if nodes:
            used = np.minimum(counts * nodes, left)
            chosen += _exactly(template, counts, nodes, used)
            left -= used
    prices = programme.prices
    while left.any():
        templates, patterns = valuable(merged, left, prices)
        best = int(np.argmax((patterns @ prices + _SMALL * patterns.sum(axis=1)) / merged.cost[templates]))
        counts = patterns[best]
        held = counts > 0
        nodes = int((left[held] // counts[held]).min())
        chosen.append(Pattern(int(templates[best]), counts, nodes))
        left -= counts * nodes
    return Cover(chosen, bound)


class Programme:
    """The linear programme over the patterns known so far. It begins with one pattern per kind."""

    def __init__(self, covering: Covering, demand: Whole) -> None:
        self.covering = covering
        self.demand = demand
        kinds = len(demand)
        alone = np.minimum(covering.alone, demand[:, None])
        each = np.where(alone > 0, covering.cost / np.maximum(alone, 1), np.inf)
        cheapest = each.argmin(axis=1)
        first = np.diag(alone[np.arange(kinds), cheapest])
        self._patterns: Whole = first
        self._templates: Whole = cheapest
        self._programme = LinearProgramme(demand.astype(np.float64), np.full(kinds, INFINITY))
        self._add(cheapest, first)

    @property
    def prices(self) -> Real:
        """The cost of one more task of each kind (the dual values), at least 0."""
        return self._programme.prices.clip(min=0.0)

    @property
    def value(self) -> float:
        return self._programme.value

    def answer(self) -> list[tuple[int, Whole, float]]:
        """Return template, counts and number of nodes of the patterns in use."""
        return [
            (int(self._templates[column]), self._patterns[column], float(level))
            for column, level in enumerate(self._programme.levels.tolist())
            if level > _SMALL
        ]

    def solve(self, pricing: Pricing) -> None:
        """Add patterns until pricing finds none that would save anything."""
        for _ in range(_ROUNDS):
            if not self.improve(*pricing(self.covering, self.demand, self.prices)):
                return

    def improve(self, templates: Whole, patterns: Whole) -> bool:
        """Add the patterns that reduce the cost and solve again. Return False if none does."""
        worth = patterns @ self.prices / self.covering.cost[templates]
        order = np.argsort(-worth, kind="stable")
        # Only the best pattern of each template: more would slow down every step and hardly be used.
        best = order[np.unique(templates[order], return_index=True)[1]]
        saving = best[worth[best] > 1 + _GAIN]
        if not len(saving):
            return False
        self._patterns = np.vstack((self._patterns, patterns[saving]))
        self._templates = np.concatenate((self._templates, templates[saving]))
        self._add(templates[saving], patterns[saving])
        return True

    def bound(self) -> float:
        """Return a proven lower bound of the cost, and add the best patterns that prove it."""
        searches = _searches(self.covering, self.demand)
        best = 0.0
        for _ in range(_BOUND_ROUNDS):
            prices = self.prices
            found = [search.best(prices) for search in searches]
            best = max(best, _proven(self.covering, self.demand, prices, [each.bound for each in found]))
            patterns = np.array([each.counts for each in found])
            if best >= self.value * _CLOSE or not self.improve(np.arange(len(patterns)), patterns):
                break
        return best

    def _add(self, templates: Whole, patterns: Whole) -> None:
        self._programme.add(self.covering.cost[templates].astype(np.float64), patterns.astype(np.float64))
        self._programme.solve()


def _bound_of_merged(covering: Covering, demand: Whole) -> float:
    """Return a lower bound for many kinds: the classes request the least of their kinds, which costs no more."""
    _, merged, sizes = similar(covering, demand, least=True)
    programme = Programme(merged, sizes)
    programme.solve(valuable)
    return programme.bound()


def _searches(covering: Covering, demand: Whole) -> list[PatternSearch]:
    """Return by template the search for the most valuable pattern."""
    scale = np.maximum(covering.capacity.max(axis=0), 1)
    uses = (covering.requests / scale).T
    return [
        PatternSearch(uses, capacity / scale, np.where(allowed, demand, 0))
        for capacity, allowed in zip(covering.capacity, covering.allowed.T, strict=True)
    ]


def _proven(covering: Covering, demand: Whole, prices: Real, worth: list[float]) -> float:
    """Return the value of all tasks at prices at which no pattern is worth more than its node (Farley's bound).

    `worth`: by template, at least the value of its most valuable pattern.
    """
    most = max((each / cost for each, cost in zip(worth, covering.cost.tolist(), strict=True)), default=1.0)
    return float(demand @ prices) / max(most, 1.0)


def valuable(covering: Covering, most: Whole, prices: Real) -> tuple[Whole, Whole]:
    """Return some patterns per template, each filled greedily with the kinds of the highest price per capacity used.

    The capacity used is weighted in several ways: one slot alone, all slots equally, and all with one slot emphasised.
    """
    kinds, slots = covering.requests.shape
    templates = np.repeat(np.arange(len(covering.capacity)), 2 * slots + 1)
    each, uniform = np.eye(slots), np.ones((1, slots))
    weights = np.tile(np.vstack((each, uniform, uniform + 3 * each)), (len(covering.capacity), 1))
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
        # Take half of the tasks that fit, because the weights of the rest depend on the remaining capacity.
        number = np.where(density[every, kind] >= 0, (number + 1) // 2, 0)
        if not number.any():
            return templates, counts
        counts[every, kind] += number
        left -= number[:, None] * covering.requests[kind]


def similar(covering: Covering, demand: Whole, *, least: bool = False) -> tuple[Whole, Covering, Whole]:
    """Merge similar kinds. Return the class of each kind, the covering of the classes, and the tasks per class.

    A class requests the maximum of its kinds, so that any of its tasks can stand for another; with `least`, the
    minimum. The kinds of a class are
    allowed on the same templates, and the class with the largest spread is split first.
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
    of_classes = [covering.requests[of_class] for of_class in members]
    merged = np.array([each.min(axis=0) if least else each.max(axis=0) for each in of_classes])
    allowed = np.array([covering.allowed[of_class[0]] for of_class in members])
    return classes.reshape(-1), Covering(merged, covering.capacity, allowed, covering.cost), sizes


def _width(shares: Real, demand: Whole, members: NDArray[np.intp]) -> float:
    """Return the spread of the requests in a class, weighted by its number of tasks."""
    return float(np.ptp(shares[members], axis=0).max() * demand[members].sum())


def _halves(shares: Real, demand: Whole, members: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return a class split at the median of its tasks, along the slot with the largest spread."""
    slot = int(np.ptp(shares[members], axis=0).argmax())
    ordered = members[np.argsort(shares[members, slot], kind="stable")]
    before = np.cumsum(demand[ordered])
    middle = int(np.searchsorted(before, before[-1] / 2)) + 1
    middle = min(middle, len(ordered) - 1)
    return [ordered[:middle], ordered[middle:]]


def _times(capacity: Whole, requests: Whole) -> Whole:
    """Return the number of times that requests fit into capacities, with slots along the last axis."""
    times: Whole = np.where(requests > 0, capacity // np.maximum(requests, 1), _ENDLESS).min(axis=-1)
    return times


def _exactly(template: int, counts: Whole, nodes: int, used: Whole) -> list[Pattern]:
    """Return the nodes of a pattern that hold exactly the `used` tasks; the last nodes may hold fewer tasks."""
    if (used == counts * nodes).all():
        return [Pattern(template, counts, nodes)]
    patterns: list[Pattern] = []
    for _ in range(nodes):
        held = np.minimum(counts, used)
        if held.any():
            patterns.append(Pattern(template, held))
        used = used - held
    return patterns
