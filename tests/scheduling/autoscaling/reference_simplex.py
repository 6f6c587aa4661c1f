"""A primal simplex in NumPy, the reference for the programme that the solver library solves."""

from __future__ import annotations

import numpy as np

from mooring.scheduling.autoscaling.column_generation import Covering, valuable
from mooring.scheduling.solver import Real, Whole

_SMALL = 1e-9
_GAIN = 1e-4


def least_value(covering: Covering, demand: Whole) -> float:
    """Return the value of the linear programme over patterns, as far as heuristic pricing finds them."""
    kinds = len(demand)
    alone = np.minimum(covering.alone, demand[:, None])
    each = np.where(alone > 0, covering.cost / np.maximum(alone, 1), np.inf)
    cheapest = each.argmin(axis=1)
    columns: Real = np.hstack((-np.eye(kinds), np.diag(alone[np.arange(kinds), cheapest])))
    costs: Real = np.concatenate((np.zeros(kinds), covering.cost[cheapest]))
    basis = np.arange(kinds, 2 * kinds)
    while True:
        basis, inverse = _pivoted(columns, costs, basis, demand)
        prices = (costs[basis] @ inverse).clip(min=0.0)
        templates, patterns = valuable(covering, demand, prices)
        worth = patterns @ prices / covering.cost[templates]
        best = int(worth.argmax())
        if worth[best] <= 1 + _GAIN:
            return float(costs[basis] @ (inverse @ demand))
        columns = np.hstack((columns, patterns[best][:, None]))
        costs = np.append(costs, covering.cost[templates[best]])


def _pivoted(columns: Real, costs: Real, basis: Whole, demand: Whole) -> tuple[Whole, Real]:
    while True:
        inverse = np.linalg.inv(columns[:, basis]).astype(np.float64)
        reduced = costs - costs[basis] @ inverse @ columns
        entering = int(reduced.argmin())
        if reduced[entering] > -_SMALL * max(costs[entering], 1.0):
            return basis, inverse
        direction = inverse @ columns[:, entering]
        level = (inverse @ demand).clip(min=0.0)
        steps = np.where(direction > _SMALL, level / np.where(direction > _SMALL, direction, 1.0), np.inf)
        basis = basis.copy()
        basis[int(steps.argmin())] = entering
