"""The timeline second by second: slow, and plain enough to be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SECONDS = 60
"""As far as the reference looks; the last second stands for all that come later."""
SLOTS = ("cpu", "memory")


@dataclass
class Stored:
    row: int
    start: int | None
    end: int | None
    amounts: Mapping[str, int]


@dataclass
class Reference:
    """The allocatable and used amounts of every row, and all promises."""

    allocatable: Sequence[Mapping[str, int]]
    taken: Sequence[Mapping[str, int]]
    stored: dict[object, Stored] = field(default_factory=dict)
    now: int = 0
    seen: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """Cache of promised amounts by row, since the last change."""

    def promised(self, row: int) -> NDArray[np.int64]:
        """[slot, second]: all that is promised of a row then."""
        if row not in self.seen:
            self.seen[row] = self._promised(row)
        return self.seen[row]

    def _promised(self, row: int) -> NDArray[np.int64]:
        seconds = np.array([[self.taken[row].get(slot, 0)] * SECONDS for slot in SLOTS], dtype=np.int64)
        for each in self.stored.values():
            if each.row == row:
                end = SECONDS if each.end is None else max(each.end, self.now + 1)
                for slot, amount in each.amounts.items():
                    if each.start is None:
                        seconds[SLOTS.index(slot), end:] -= amount
                    else:
                        seconds[SLOTS.index(slot), each.start : each.end] += amount
        return seconds

    def peak(self, row: int, slot: str, start: int, end: int | None) -> int:
        return int(self.promised(row)[SLOTS.index(slot), max(start, self.now) : end].max())

    def fits(self, row: int, request: Mapping[str, int], start: int, end: int | None) -> bool:
        return all(
            self.peak(row, slot, start, end) + amount <= self.allocatable[row].get(slot, 0)
            for slot, amount in request.items()
        )

    def task_capacity(self, row: int, request: Mapping[str, int], start: int, end: int | None, most: int) -> int:
        """Return how many of a request fit at once, at most `most`."""
        for count in range(most, 0, -1):
            if self.fits(row, {slot: amount * count for slot, amount in request.items()}, start, end):
                return count
        return 0

    def earliest(
        self, rows: Sequence[int], request: Mapping[str, int], seconds: int | None, not_before: int, count: int = 1
    ) -> int | None:
        """The first time from which this many fit at once for this long; None: at no time."""
        for start in range(max(not_before, self.now), SECONDS):
            end = None if seconds is None else start + seconds
            if sum(self.task_capacity(row, request, start, end, count) for row in rows) >= count:
                return start
        return None
