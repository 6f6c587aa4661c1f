"""Compiled formulas of scorers from other packages, which the kernels call for each row."""

from __future__ import annotations

from collections.abc import Callable

import numba

from mooring.scheduling.compiled.layout import Floats, Int64s, Number, RowScore

__all__ = ["NO_ROW_SCORE", "Floats", "Int64s", "RowScore", "row_score"]


def row_score(function: Callable[..., int]) -> RowScore:
    """Compile a scorer's formula for one row, to be its `kernel`. The kernels themselves are not compiled again.

    The kernels call `function(free, inverse, request, row)`. `free[row, slot]` is the free amount of each slot in the
    order of the cluster's slot axis, followed by the number of tasks that the node still takes. `inverse[row, slot]` is
    1 / allocatable for CPU and memory, 0 if there is none. `request[slot]` is the amount that the task requests. The
    function returns 0 to SCORE_ONE, the same as `score` for that row, and must neither allocate nor raise.
    """
    array = numba.types.Array
    whole = numba.types.int64
    signature = whole(array(whole, 2, "C"), array(numba.types.float64, 2, "C"), array(whole, 1, "C"), whole)
    compiled: RowScore = numba.cfunc(signature)(function)
    return compiled


def _zero(free: Number, inverse: Number, request: Number, row: Number) -> Number:
    return 0


NO_ROW_SCORE = row_score(_zero)
"""The argument for profiles in which no scorer has a formula of its own."""
