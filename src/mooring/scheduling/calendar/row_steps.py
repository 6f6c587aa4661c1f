"""The step function of one row in plain lists, changed in place: for queries about a few rows with few promises.

Array operations have a fixed cost that exceeds the work on a short list. `step_functions` answers the same queries for
many rows at once, and for rows with many promises.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from mooring.scheduling.calendar.step_functions import BEGINNING, NEVER


class RowSteps:
    """The promised amounts of a row over time, relative to those taken now. Slots without a promise are zero."""

    def __init__(self) -> None:
        self._times: list[int] = [BEGINNING]
        self._amounts: dict[int, list[int]] = {}
        """By slot, the amount from each time on."""

    def add(self, start: int | None, end: int | None, amounts: Iterable[tuple[int, int]], sign: int) -> None:
        """Add (1) or remove (-1) a promise. Without a start its amounts are taken already, and released at its end."""
        if start is None:
            start, end, sign = end, None, -sign
        if start is None:
            return
        self._break_at(start)
        if end is not None:
            self._break_at(end)
        first = bisect_left(self._times, start)
        after = len(self._times) if end is None else bisect_left(self._times, end)
        for slot, amount in amounts:
            values = self._amounts.get(slot)
            if values is None:
                values = self._amounts[slot] = [0] * len(self._times)
            change = sign * amount
            values[first:after] = [value + change for value in values[first:after]]
        if end is not None:
            self._merge(after)
        self._merge(first)

    def highest(self, slot: int, start: int, end: int) -> int:
        """Return the highest amount of a slot in a window."""
        values = self._amounts.get(slot)
        if values is None:
            return 0
        first = bisect_right(self._times, start) - 1
        return max(values[first : max(bisect_left(self._times, end), first + 1)])

    def at(self, slot: int, time: int) -> int:
        """Return the amount of a slot at a time."""
        values = self._amounts.get(slot)
        return 0 if values is None else values[bisect_right(self._times, time) - 1]

    def highest_ever(self, slot: int) -> int:
        """Return the highest amount of a slot at any time, at least zero."""
        return max(0, *self._amounts.get(slot, (0,)))

    def earliest(
        self, slots: Sequence[int], spare: Sequence[int], seconds: int | None, not_before: int, horizon: int
    ) -> int:
        """Return the first time from which each slot has at most `spare` for `seconds`; NEVER if there is none."""
        times = self._times
        limits = [
            (values, most) for slot, most in zip(slots, spare, strict=True) if (values := self._amounts.get(slot))
        ]
        if any(most < 0 for slot, most in zip(slots, spare, strict=True) if slot not in self._amounts):
            return NEVER
        start: int | None = None
        for at in range(bisect_right(times, not_before) - 1, len(times)):
            if start is not None and seconds is not None and times[at] - start >= seconds:
                return start
            if any(values[at] > most for values, most in limits):
                start = None
            elif start is None:
                start = max(times[at], not_before)
                if start > horizon:
                    return NEVER
        return NEVER if start is None else start

    def _break_at(self, time: int) -> None:
        """Begin a step at a time."""
        at = bisect_left(self._times, time)
        if at == len(self._times) or self._times[at] != time:
            self._times.insert(at, time)
            for values in self._amounts.values():
                values.insert(at, values[at - 1])

    def _merge(self, at: int) -> None:
        """Merge a step with the one before if they are equal."""
        if at < len(self._times) and all(values[at] == values[at - 1] for values in self._amounts.values()):
            del self._times[at]
            for values in self._amounts.values():
                del values[at]
