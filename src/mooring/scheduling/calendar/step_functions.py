"""Amounts that change over time: a step function per row, and over its steps a tree of their maxima.

The step functions of all rows share two arrays. Row r has `used` steps from its offset on: their breakpoints in order,
and in the tree, which is twice as large, the amounts from each breakpoint on. A query takes logarithmic time in a row's
steps and covers all rows at once.

A row with many steps is spread: it repeats steps, which changes no query result. A new breakpoint overwrites the
nearest repetition, and one that is no longer needed becomes a repetition, so that the cost of a change depends on the
steps it covers and not on all steps of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from mooring.scheduling.cluster.arrays import Amount, Rows

NEVER = 1 << 62
"""The end of the last step."""
BEGINNING = -NEVER
"""The first breakpoint of every row."""
_LOWEST = -(1 << 62)
"""Below every step."""
_FEW = 4
"""Up to this many rows are queried one by one: a vectorised operation has a fixed cost of its own."""
_LEAST_SPACE = 4
"""The least space of a row that is not zero, in steps."""
_NARROW = 8
"""Up to this many steps of each row are all looked at: binary searches take more operations."""
_MANY = 256
"""A row with more steps than this is spread."""
MOST_AT_ONCE = _MANY // 2
"""The promises of a row that is built together with others: each has two breakpoints at most."""
_REACH = 32
"""The distance, in steps, within which a repetition is searched for around a new breakpoint."""

Changes: TypeAlias = Mapping[tuple[int, int], int]
"""By time and slot: the change of the row's amount from then on; never zero."""


class Steps(NamedTuple):
    """The steps of several rows, one row after the other."""

    number: Rows
    """The position of the step's row in the queried rows."""
    begins: Amount
    ends: Amount
    amounts: Amount
    """As [slot, step]."""


class StepFunctions:
    """The step functions of rows; each is zero until it is built."""

    def __init__(self, capacity: int, slots: int) -> None:
        self.written = 0
        """The number of steps written so far: the cost of all changes."""
        self._offset = np.zeros(capacity, dtype=np.int64)
        self._size = np.ones(capacity, dtype=np.int64)
        self._used = np.ones(capacity, dtype=np.int64)
        # All rows that are zero share the first step.
        self._length = 1
        self._unused: dict[int, list[int]] = {}
        self._times: Amount = np.full(64, BEGINNING, dtype=np.int64)
        self._tree: Amount = np.zeros((128, slots), dtype=np.int64)
        self._highest: Amount = np.zeros((slots, capacity), dtype=np.int64)
        self._spread: set[int] = set()

    @property
    def slots(self) -> int:
        return len(self._highest)

    def grow(self, capacity: int) -> None:
        """Extend to this many rows."""
        more = capacity - len(self._offset)
        self._offset = np.concatenate((self._offset, np.zeros(more, dtype=np.int64)))
        self._size = np.concatenate((self._size, np.ones(more, dtype=np.int64)))
        self._used = np.concatenate((self._used, np.ones(more, dtype=np.int64)))
        self._highest = np.concatenate((self._highest, np.zeros((len(self._highest), more), dtype=np.int64)), axis=1)

    def widen(self, slots: int) -> None:
        """Extend to this many slots; the new ones are zero."""
        more = slots - self.slots
        self._tree = np.concatenate((self._tree, np.zeros((len(self._tree), more), dtype=np.int64)), axis=1)
        self._highest = np.concatenate((self._highest, np.zeros((more, self._highest.shape[1]), dtype=np.int64)))

    @property
    def has_spread(self) -> bool:
        """Whether any row can be changed in place."""
        return bool(self._spread)

    def is_spread(self, row: int) -> bool:
        """Return whether the row can be changed in place."""
        return row in self._spread

    def steps_of(self, row: int) -> int:
        """Return the number of steps that a row occupies, repeated ones included."""
        return int(self._used[row])

    def build(self, row: int, times: Amount, steps: Amount) -> None:
        """Set a row's breakpoints, beginning with BEGINNING, and the amounts from each on, as [step, slot]."""
        if len(times) > _MANY:
            self._spread.add(row)
            self._write_spread(row, times, steps)
        else:
            self._spread.discard(row)
            self._write(row, times, steps)

    def build_several(self, rows: Rows, numbers: Rows, times: Amount, slots: Rows, added: Amount) -> None:
        """Set the steps of rows that are not spread from the changes of their amounts, as in `steps_of`."""
        first, times, steps = steps_of(numbers, times, slots, added, rows=len(rows), slots_in_all=self.slots)
        used = np.diff(np.append(first, len(times)))
        size = np.maximum(1 << np.frexp(used - 1)[1].astype(np.int64), _LEAST_SPACE)
        size[used == 1] = 1
        # A planned start comes and goes with most passes, so that a row keeps its space for a few steps.
        present, has_space = self._size[rows], self._offset[rows] > 0
        reused = has_space & (size <= present) & (present <= _NARROW)
        size = np.where(reused, present, size)
        for at in np.flatnonzero(~reused & (has_space | (used > 1))).tolist():
            row = int(rows[at])
            self._recycle(row)
            self._offset[row] = self._take(int(size[at])) if used[at] > 1 else 0
        self._size[rows], self._used[rows] = size, used
        self._highest[:, rows] = 0
        self.written += len(times)
        has_space = self._offset[rows] > 0
        for width in sorted(set(size[has_space].tolist())):
            alike = np.flatnonzero((size == width) & has_space)
            column = np.arange(width)
            here = np.minimum(first[alike, None] + column, len(times) - 1)
            there = column < used[alike, None]
            offset = self._offset[rows[alike], None]
            self._times[(offset + column)[there]] = times[here[there]]
            tree = np.empty((len(alike), 2 * width, self.slots), dtype=np.int64)
            tree[:, width:] = np.where(there[:, :, None], steps[here], _LOWEST)
            for low in (width >> shift for shift in range(1, width.bit_length())):
                np.maximum(
                    tree[:, 2 * low : 4 * low : 2], tree[:, 2 * low + 1 : 4 * low : 2], out=tree[:, low : 2 * low]
                )
            tree[:, 0] = 0
            self._tree[2 * offset + np.arange(2 * width)] = tree
            self._highest[:, rows[alike]] = np.maximum(tree[:, 1], 0).T

    def change(self, row: int, changes: Changes) -> None:
        """Change a spread row in place."""
        for run in _runs(changes, self.slots):
            while not self._add(row, run):
                times, leaves = self._leaves(row)
                new = np.concatenate(([True], times[1:] != times[:-1]))
                self._write_spread(row, times[new], leaves[new])

    def highest(self, rows: Rows, slots: Rows, start: int, end: int) -> Amount:
        """Return the highest amount of each row in a window, as [slot, row]."""
        if len(rows) <= _FEW and self._spread.isdisjoint(rows.tolist()):
            return np.array([self._highest_of(row, start, end)[slots] for row in rows.tolist()], dtype=np.int64).T
        if int(self._used[rows].max(initial=1)) <= _NARROW:
            return self._highest_by_scan(rows, slots, start, max(end, start + 1))
        size, base = self._size[rows], 2 * self._offset[rows]
        low = self._steps_until(rows, start, including=True) - 1 + size
        high = np.maximum(self._steps_until(rows, end, including=False) + size, low + 1)
        result = np.full((len(rows), len(slots)), _LOWEST, dtype=np.int64)
        while (low < high).any():
            for at, edge in ((low & 1 == 1, low), (high & 1 == 1, high - 1)):
                at = np.flatnonzero(at & (low < high))
                result[at] = np.maximum(result[at], self._tree[(base[at] + edge[at])[:, None], slots])
            low, high = (low + 1) >> 1, high >> 1
        return result.T

    def _highest_by_scan(self, rows: Rows, slots: Rows, start: int, end: int) -> Amount:
        """Return the highest amounts of rows with few steps, by a look at all of them."""
        column, times = self._breakpoints(rows)
        overlaps = times < end
        overlaps[:, :-1] &= times[:, 1:] > start
        leaf = (2 * self._offset[rows] + self._size[rows])[:, None] + column
        amounts = self._tree[np.where(overlaps, leaf, 0)[:, :, None], slots]
        amounts[~overlaps] = _LOWEST
        highest: Amount = amounts.max(axis=1).T
        return highest

    def _breakpoints(self, rows: Rows) -> tuple[Rows, Amount]:
        """Return the numbers of the steps, and the breakpoints as [row, step], NEVER beyond a row's last one."""
        used = self._used[rows]
        column: Rows = np.arange(int(used.max(initial=1)))
        at = np.minimum(self._offset[rows][:, None] + column, len(self._times) - 1)
        return column, np.where(column < used[:, None], self._times[at], NEVER)

    def highest_ever(self, rows: Rows, slots: Rows) -> Amount:
        """Return the highest amount of each row at any time, at least zero, as [slot, row]; `slots` is a column."""
        return self._highest[slots, rows]

    def within(self, rows: Rows, slots: Rows, start: int, end: int) -> Steps:
        """Return the steps that overlap a window, not clipped to it."""
        first = self._steps_until(rows, start, including=True) - 1
        count = np.maximum(self._steps_until(rows, end, including=False), first + 1) - first
        number = np.repeat(np.arange(len(rows)), count)
        step = np.arange(len(number)) + np.repeat(first - (np.cumsum(count) - count), count)
        offset = self._offset[rows][number]
        last = step == self._used[rows][number] - 1
        ends = np.where(last, NEVER, self._times[np.minimum(offset + step + 1, len(self._times) - 1)])
        amounts = self._tree[(2 * offset + self._size[rows][number] + step)[:, None], slots].T
        return Steps(number, self._times[offset + step], ends, amounts)

    def _add(self, row: int, run: list[tuple[int, Amount]]) -> bool:
        """Add amounts from each time on; return False if no repetition is left for a breakpoint.

        In that case breakpoints without a change of amounts may remain, which is harmless.
        """
        times, leaves = self._leaves(row)
        low, high = len(times), 0
        for time, _ in run:
            written = _set_breakpoint(times, leaves, time)
            if written is None:
                return False
            low, high = min(low, written[0]), max(high, written[1])
        firsts = [*times.searchsorted([time for time, _ in run]).tolist(), len(times)]
        total = np.zeros(self.slots, dtype=np.int64)
        for (time, amounts), first, after in zip(run, firsts[:-1], firsts[1:], strict=True):
            total = total + amounts
            if total.any():
                leaves[first:after] += total
                low, high = min(low, first), max(high, after)
            if (leaves[first] == leaves[first - 1]).all():
                times[first : int(times.searchsorted(time, side="right"))] = times[first - 1]
        self.written += high - low
        self._refresh(row, low, high)
        return True

    def _write_spread(self, row: int, times: Amount, steps: Amount) -> None:
        """Write each step two to four times."""
        size = 2 << (len(times) - 1).bit_length()
        source = np.arange(size) * len(times) // size
        self._write(row, times[source], steps[source])

    def _write(self, row: int, times: Amount, steps: Amount) -> None:
        used = len(times)
        size = 1 << (used - 1).bit_length()
        if size != self._size[row] or self._offset[row] == 0:
            self._recycle(row)
            self._offset[row] = self._take(size) if used > 1 else 0
            self._size[row] = size
        self._used[row] = used
        self.written += used
        if used == 1:
            self._highest[:, row] = 0
            return
        offset = int(self._offset[row])
        self._times[offset : offset + used] = times
        tree = self._tree[2 * offset : 2 * (offset + size)]
        tree[size : size + used] = steps
        tree[size + used :] = _LOWEST
        self._refresh(row, 0, size)

    def _leaves(self, row: int) -> tuple[Amount, Amount]:
        """Return writable views of a row's breakpoints and of the amounts from each on."""
        offset, used, size = int(self._offset[row]), int(self._used[row]), int(self._size[row])
        return self._times[offset : offset + used], self._tree[2 * offset + size : 2 * offset + size + used]

    def _refresh(self, row: int, low: int, high: int) -> None:
        """Recompute the maxima over some steps of a row."""
        offset, size = int(self._offset[row]), int(self._size[row])
        tree = self._tree[2 * offset : 2 * (offset + size)]
        low, high = low + size, high + size
        while low > 1:
            low, high = low >> 1, (high + 1) >> 1
            np.maximum(tree[2 * low : 2 * high : 2], tree[2 * low + 1 : 2 * high : 2], out=tree[low:high])
        self._highest[:, row] = np.maximum(tree[1], 0)

    def _highest_of(self, row: int, start: int, end: int) -> Amount:
        """Return the highest amounts of one row in a window by a scan of its steps."""
        times, leaves = self._leaves(row)
        low = int(times.searchsorted(start, side="right")) - 1
        high = max(int(times.searchsorted(end)), low + 1)
        highest: Amount = leaves[low:high].max(axis=0)
        return highest

    def _steps_until(self, rows: Rows, time: int, *, including: bool) -> Amount:
        """Return the number of breakpoints of each row before a time (or at it), by one binary search over all rows."""
        if len(rows) <= _FEW:
            side: Literal["left", "right"] = "right" if including else "left"
            found = [self._leaves(row)[0].searchsorted(time, side=side) for row in rows.tolist()]
            return np.array(found, dtype=np.int64)
        if int(self._used[rows].max(initial=1)) <= _NARROW:
            times = self._breakpoints(rows)[1]
            steps: Amount = (times <= time if including else times < time).sum(axis=1, dtype=np.int64)
            return steps
        offset = self._offset[rows]
        low, high = np.zeros(len(rows), dtype=np.int64), self._used[rows].copy()
        for _ in range(int(high.max(initial=1)).bit_length()):
            middle = (low + high) >> 1
            at = self._times[offset + np.minimum(middle, high - 1)]
            before = (at <= time if including else at < time) & (low < high)
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, np.minimum(middle, high))
        return low

    def _take(self, size: int) -> int:
        """Return the offset of free space for the steps of a row."""
        free = self._unused.get(size)
        if free:
            return free.pop()
        offset, self._length = self._length, self._length + size
        if self._length > len(self._times):
            more = max(self._length, 2 * len(self._times)) - len(self._times)
            self._times = np.concatenate((self._times, np.zeros(more, dtype=np.int64)))
            self._tree = np.concatenate((self._tree, np.zeros((2 * more, self.slots), dtype=np.int64)))
        return offset

    def _recycle(self, row: int) -> None:
        if self._offset[row]:
            self._unused.setdefault(int(self._size[row]), []).append(int(self._offset[row]))


def steps_of(
    numbers: Rows, times: Amount, slots: Rows, added: Amount, *, rows: int, slots_in_all: int
) -> tuple[Rows, Amount, Amount]:
    """Return the step functions of several rows: the first step of each, the breakpoints, and the amounts from each on.

    The amounts are as [step, slot]. Each change adds an amount to a slot of a row, which `numbers` counts from zero, at
    a time; until the first change of a row its amounts are zero.
    """
    numbers = np.concatenate((np.arange(rows), numbers))
    times = np.concatenate((np.full(rows, BEGINNING), times))
    order = np.lexsort((times, numbers))
    numbers, times = numbers[order], times[order]
    new = np.concatenate(([True], (numbers[1:] != numbers[:-1]) | (times[1:] != times[:-1])))
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.cumsum(new) - 1
    numbers, times = numbers[new], times[new]
    steps = np.zeros((len(times), slots_in_all), dtype=np.int64)
    np.add.at(steps, (position[rows:], slots), added)
    np.cumsum(steps, axis=0, out=steps)
    first = np.flatnonzero(times == BEGINNING)
    steps -= np.concatenate((np.zeros((1, slots_in_all), dtype=np.int64), steps[first[1:] - 1]))[numbers]
    return first, times, steps


def _runs(changes: Changes, slots: int) -> Iterator[list[tuple[int, Amount]]]:
    """Yield the changes in time order, split where their sum is zero: between two runs nothing changes."""
    by_time: dict[int, Amount] = {}
    for (time, slot), amount in sorted(changes.items()):
        by_time.setdefault(time, np.zeros(slots, dtype=np.int64))[slot] += amount
    run: list[tuple[int, Amount]] = []
    total = np.zeros(slots, dtype=np.int64)
    for time, amounts in by_time.items():
        run.append((time, amounts))
        total += amounts
        if not total.any():
            yield run
            run = []
    if run:
        yield run


def _set_breakpoint(times: Amount, leaves: Amount, time: int) -> tuple[int, int] | None:
    """Split the step at a time into two equal ones; return the range of steps written, None if none is repeated."""
    at = int(times.searchsorted(time, side="right")) - 1
    if times[at] == time:
        return at, at
    low, high = max(at - _REACH, 0), min(at + _REACH, len(times))
    repeated = np.flatnonzero(times[low + 1 : high] == times[low : high - 1]) + low + 1
    if not len(repeated):
        return None
    gap = int(repeated[np.abs(repeated - at).argmin()])
    if gap <= at:
        times[gap:at] = times[gap + 1 : at + 1]
        leaves[gap:at] = leaves[gap + 1 : at + 1]
        times[at] = time
        return gap, at + 1
    times[at + 2 : gap + 1] = times[at + 1 : gap]
    leaves[at + 2 : gap + 1] = leaves[at + 1 : gap]
    times[at + 1], leaves[at + 1] = time, leaves[at]
    return at + 1, gap + 1
