"""Linear and integer programmes, solved by HiGHS: deterministic, in one thread, bounded by counts instead of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from highspy import Highs

Whole: TypeAlias = NDArray[np.int64]
Real: TypeAlias = NDArray[np.float64]

INFINITY = float("inf")
_SLACK = 1e-6
"""Relative tolerance of the solver, added to values that have to be bounds."""


class LinearProgramme:
    """Minimises a cost over columns that are at least 0; the rows lie between bounds. Columns are added over time."""

    def __init__(self, lower: Real, upper: Real, *, iterations: int = 20_000) -> None:
        """`iterations`: the maximum number of simplex iterations of one `solve`."""
        self._highs = _new_highs()
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        # Once columns have been added, the last basis is the best start; presolve would discard it.
        self._highs.setOptionValue("presolve", "off")
        self._rows = len(lower)
        self.columns = 0
        empty = np.zeros(0, dtype=np.int32)
        self._highs.addRows(
            self._rows,
            np.asarray(lower, dtype=np.float64),
            np.asarray(upper, dtype=np.float64),
            0,
            np.zeros(self._rows, dtype=np.int32),
            empty,
            empty.astype(np.float64),
        )

    def add(self, costs: Real, columns: Real) -> None:
        """Add columns, given as [column, row], with their costs."""
        number = len(costs)
        at, rows = np.nonzero(columns)
        starts = np.searchsorted(at, np.arange(number)).astype(np.int32)
        self._highs.addCols(
            number,
            np.asarray(costs, dtype=np.float64),
            np.zeros(number),
            np.full(number, INFINITY),
            len(rows),
            starts,
            rows.astype(np.int32),
            columns[at, rows].astype(np.float64),
        )
        self.columns += number

    def solve(self) -> bool:
        """Solve from the last solution. Return whether the solution is optimal."""
        from highspy import HighsModelStatus

        self._highs.run()
        return bool(self._highs.getModelStatus() == HighsModelStatus.kOptimal)

    @property
    def value(self) -> float:
        return float(self._highs.getInfo().objective_function_value)

    @property
    def levels(self) -> Real:
        """The value of each column."""
        return np.array(self._highs.getSolution().col_value, dtype=np.float64)

    @property
    def prices(self) -> Real:
        """The dual value of each row: the cost of one more unit."""
        return np.array(self._highs.getSolution().row_dual, dtype=np.float64)


class BestPattern(NamedTuple):
    """The most valuable numbers of items that the search found, and a proven upper bound of what any are worth."""

    counts: Whole
    worth: float
    bound: float


class PatternSearch:
    """Finds the most valuable pattern: whole numbers of items that use at most the capacity. An integer programme."""

    def __init__(self, uses: Real, capacity: Real, limits: Whole, *, nodes: int = 50) -> None:
        """`uses`: [row, item], at least 0. `nodes`: the maximum number of nodes of the branch and bound."""
        from highspy import HighsVarType

        self._uses, self._capacity, self._limits = uses, capacity, limits
        rows, items = uses.shape
        self._highs = _new_highs()
        self._highs.setOptionValue("mip_max_nodes", nodes)
        self._highs.setOptionValue("mip_rel_gap", 1e-3)
        # The programmes are small: their relaxation is nearly tight, and searching for solutions first takes longest.
        self._highs.setOptionValue("mip_heuristic_effort", 0.0)
        self._highs.setOptionValue("presolve", "off")
        empty = np.zeros(0, dtype=np.int32)
        self._highs.addRows(
            rows,
            np.full(rows, -INFINITY),
            np.asarray(capacity, dtype=np.float64),
            0,
            np.zeros(rows, dtype=np.int32),
            empty,
            empty.astype(np.float64),
        )
        at, of = np.nonzero(uses.T)
        self._highs.addCols(
            items,
            np.zeros(items),
            np.zeros(items),
            limits.astype(np.float64),
            len(of),
            np.searchsorted(at, np.arange(items)).astype(np.int32),
            of.astype(np.int32),
            uses.T[at, of].astype(np.float64),
        )
        self._items = np.arange(items, dtype=np.int32)
        self._highs.changeColsIntegrality(items, self._items, np.full(items, int(HighsVarType.kInteger), np.uint8))

    def best(self, values: Real) -> BestPattern:
        """Return the best pattern at these values of the items. Items without value are left out."""
        gain = np.maximum(values, 0.0)
        self._highs.changeColsCost(len(gain), self._items, -gain)
        self._highs.run()
        info = self._highs.getInfo()
        found = np.array(self._highs.getSolution().col_value, dtype=np.float64)
        counts = np.zeros(len(gain), dtype=np.int64)
        if len(found) == len(gain):
            counts = np.clip(np.floor(found + _SLACK).astype(np.int64), 0, self._limits)
        counts[gain <= 0] = 0
        if (self._uses @ counts > self._capacity * (1 + _SLACK) + _SLACK).any():
            counts[:] = 0
        worth = float(counts @ gain)
        dual = -float(info.mip_dual_bound)
        if not np.isfinite(dual):
            dual = self._simple_bound(gain)
        return BestPattern(counts, worth, max(worth, min(dual, self._simple_bound(gain)) * (1 + _SLACK)))

    def _simple_bound(self, gain: Real) -> float:
        """Return the least value over the rows when one row alone limits the items: a fractional knapsack."""
        bounds = [float(gain @ self._limits)]
        for row, capacity in zip(self._uses, self._capacity.tolist(), strict=True):
            free = row <= 0
            worth = float(gain[free] @ self._limits[free])
            at = np.flatnonzero(~free)
            at = at[np.argsort(-(gain[at] / row[at]), kind="stable")]
            used = row[at] * self._limits[at]
            before = np.minimum(np.concatenate(([0.0], np.cumsum(used)[:-1])), capacity) if len(at) else used
            taken = np.minimum(used, capacity - before)
            bounds.append(worth + float((gain[at] / row[at]) @ taken))
        return min(bounds)


def _new_highs() -> Highs:
    # Imported on first use: a server without scale-up and defragmentation starts without the solver.
    from highspy import Highs

    highs = Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("random_seed", 0)
    return highs
