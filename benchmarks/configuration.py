"""A lower bound on the cost of nodes for given tasks: the linear programme over all patterns (the configuration LP).

Whatever prices tasks are given: where no pattern is worth more than its node, all nodes together cost at least what all
tasks are worth. Patterns are searched exactly, over a grid of amounts, so that this holds for the prices found.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mooring.scheduling.autoscaling.column_generation import (
    Covering,
    Programme,
    valuable,
)
from mooring.scheduling.solver import Real, Whole

_ROUNDS = 40
_CLOSE = 0.995
"""The search ends when the bound is this part of the programme's own cost."""


def bound(covering: Covering, demand: Whole) -> float:
    """The amounts of the covering are small numbers of grid steps in exactly three slots; all kinds go anywhere."""
    programme = Programme(covering, demand)
    programme.solve(valuable)
    best = 0.0
    for _ in range(_ROUNDS):
        prices = programme.prices.clip(min=0.0)
        templates, patterns = _most_valuable(covering, demand, prices)
        worth = float((patterns @ prices / covering.cost[templates]).max())
        best = max(best, float(demand @ prices) / max(worth, 1.0))
        if best > programme.value * _CLOSE or not programme.improve(templates, patterns):
            break
    return best


def _most_valuable(covering: Covering, most: Whole, prices: Real) -> tuple[Whole, Whole]:
    """By template, the most valuable pattern, with any number of tasks of each kind."""
    largest = covering.capacity.max(axis=0)
    choice = _choices(covering.requests, prices, largest)
    patterns = np.zeros((len(covering.capacity), len(most)), dtype=np.int64)
    for template, capacity in enumerate(covering.capacity.tolist()):
        at = list(capacity)
        while (kind := int(choice[tuple(at)])) != _NONE:
            if kind >= 0:
                patterns[template, kind] += 1
                at = [amount - taken for amount, taken in zip(at, covering.requests[kind].tolist(), strict=True)]
            else:
                at[-1 - kind] -= 1
    return np.arange(len(covering.capacity)), patterns


_NONE = -9


@njit(cache=True)
def _choices(requests: Whole, prices: Real, largest: Whole) -> NDArray[np.int16]:
    """Per amounts left the kind to take next; -1, -2, -3 to leave a step of that slot unused, _NONE for nothing."""
    first, second, third = largest[0] + 1, largest[1] + 1, largest[2] + 1
    worth = np.zeros((first, second, third))
    choice = np.full((first, second, third), np.int16(_NONE))
    for a in range(first):
        for b in range(second):
            for c in range(third):
                best, chosen = 0.0, _NONE
                if a and worth[a - 1, b, c] > best:
                    best, chosen = worth[a - 1, b, c], -1
                if b and worth[a, b - 1, c] > best:
                    best, chosen = worth[a, b - 1, c], -2
                if c and worth[a, b, c - 1] > best:
                    best, chosen = worth[a, b, c - 1], -3
                for kind in range(len(prices)):
                    x, y, z = a - requests[kind, 0], b - requests[kind, 1], c - requests[kind, 2]
                    if x >= 0 and y >= 0 and z >= 0 and worth[x, y, z] + prices[kind] > best:
                        best, chosen = worth[x, y, z] + prices[kind], kind
                worth[a, b, c] = best
                choice[a, b, c] = chosen
    return choice
