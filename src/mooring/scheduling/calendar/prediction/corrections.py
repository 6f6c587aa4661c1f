"""Correction of expected ends that have passed.

A task that outlives its prediction is given more time, in increments that grow with every correction: those of Tsafrir,
Etsion and Feitelson, "Backfilling Using System-Generated Predictions Rather Than User Runtime Estimates" (2007). An end
expected at any moment would instead keep the nodes around it idle.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

_MINUTE, _HOUR = 60, 3600
INCREMENTS = (
    *(minutes * _MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 5, 10, 20, 50, 100)),
)
_ADDED = tuple(accumulate(INCREMENTS))


def corrected_end(end: int, now: int) -> int:
    """Return the first corrected end after `now` of a task that was expected to end at `end`."""
    late = now - end
    if late < 0:
        return end
    corrections = bisect_right(_ADDED, late)
    if corrections < len(_ADDED):
        return end + _ADDED[corrections]
    return end + _ADDED[-1] + ((late - _ADDED[-1]) // INCREMENTS[-1] + 1) * INCREMENTS[-1]
