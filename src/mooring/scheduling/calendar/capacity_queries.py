"""Queries of the timeline: the rows and times at which a demand fits next to all promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mooring.scheduling.calendar.promises import Promise, Promises
from mooring.scheduling.calendar.row_steps import RowSteps
from mooring.scheduling.calendar.step_functions import BEGINNING, NEVER
from mooring.scheduling.cluster.arrays import Amount, Demand, Mask, Rows

_SUMMED_ONE_BY_ONE = 4
"""Up to this many rows, what their tasks release is summed row by row: array operations have a fixed cost."""
_SEARCHED_BY_SPANS = 64
"""On more rows than this, the first start is searched for in ever longer spans of time."""
_FIRST_SPAN, _LAST_SPAN, _LONGER = 256, 1 << 20, 4
"""In seconds, and the factor between two spans."""


class Alternatives(NamedTuple):
    """Alternatives to a booking that does not fit: a later start, or fewer tasks."""

    start: int | None
    """The first time from which all tasks fit for the same duration; None if there is none before the horizon."""
    tasks: int
    """The number of tasks that fit in the requested window."""


class CapacityQueries(Promises):
    """Read-only queries for the rows and times at which a demand fits."""

    def surplus(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """Return the peak of the promised amounts in a window relative to the amounts taken now, as [slot, row]."""
        start, end = max(start, self.now), NEVER if end is None else end
        few = self._steps_of_few(rows)
        if few is not None:
            highest = [[steps.highest(slot, start, end) for steps in few] for slot, _ in demand.by_slot]
            return np.array(highest, dtype=np.int64).reshape(len(demand.by_slot), len(rows))
        self._build(rows)
        return self._steps.highest(rows, demand.slots[:, 0], start, end)

    def peaks(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """Return the peak of the promised amounts of the requested slots in a window, as [slot, row]."""
        peaks: Amount = self._cluster.taken[demand.slots, rows] + self.surplus(rows, demand, start, end)
        return peaks

    def fits(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Mask:
        """Return whether each row fits for the whole window: promised amounts plus request are at most allocatable."""
        free = self._free(rows, demand) - self.surplus(rows, demand, start, end)
        every_slot: Mask = np.logical_and.reduce(demand.amounts <= free, axis=0)
        return every_slot

    def task_capacity(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """Return the number of tasks with this demand that each row can take for the whole window."""
        free = self._free(rows, demand) - self.surplus(rows, demand, start, end)
        return _times(free, demand)

    def conflicts(
        self,
        rows: Rows,
        demand: Demand,
        seconds: int | None,
        notice: int | None = None,
        *,
        promised: bool = False,
    ) -> Rows:
        """Return the rows on which a task that starts now for `seconds` (None: open) conflicts with a booking.

        `notice`: a task without an end is moved for bookings further ahead than this; None: it is never moved.
        `promised`: it uses capacity that was promised to it, despite later bookings for which other tasks are moved.
        Whether it fits now is not checked here.
        """
        few = None if seconds is None or promised else self._steps_of_few(rows)
        if few is not None:
            assert seconds is not None
            end = self.now + max(seconds, 1)
            crowded = [self._is_crowded(steps, row, demand, end) for steps, row in zip(few, rows.tolist(), strict=True)]
            return rows[np.array(crowded, dtype=np.bool_)]
        rows = rows[self._crowds(rows, demand, self._most_ever(rows, demand))]
        if len(rows) and (seconds is not None or notice is not None):
            surplus = self.surplus_during(rows, demand, seconds, notice)
            if promised:
                surplus = surplus - np.array([self._lasting(row) for row in rows.tolist()])[:, demand.slots[:, 0]].T
            rows = rows[self._crowds(rows, demand, surplus)]
        return rows

    def surplus_during(self, rows: Rows, demand: Demand, seconds: int | None, notice: int | None) -> Amount:
        """Return the surplus that counts for a task that starts now: until its end, or for the notice if it has none.

        Nothing is moved for planned starts and maintenance: on rows with these, work without an end never leaves.
        """
        end = None if seconds is None else self.now + max(seconds, 1)
        surplus = self.surplus(rows, demand, self.now, end)
        if seconds is None and notice is not None:
            shared = self._firm[rows] == 0
            if shared.any():
                surplus[:, shared] = self.surplus(rows[shared], demand, self.now, self.now + max(notice, 1))
        return surplus

    def first_crowded(self, row: int, demand: Demand) -> int | None:
        """Return the start of the first booking of a row with which the demand does not fit; None without one."""
        rows = np.array([row], dtype=np.intp)
        booked = [each for _, each in self.on(row) if each.start is not None and not each.is_planned]
        for start in sorted(each.start for each in booked if each.start is not None):
            if self._crowds(rows, demand, self.surplus(rows, demand, start, start + 1))[0]:
                return start
        return None

    def earliest(
        self, rows: Rows, demand: Demand, seconds: int | None, not_before: int, horizon: int = NEVER
    ) -> Amount:
        """Return per row the first time from which a request fits for `seconds` (None: indefinitely).

        NEVER if there is none by the horizon. Each step until then is visited once, however many of them block.
        """
        not_before = max(not_before, self.now)
        few = self._steps_of_few(rows)
        if few is not None:
            slots = [slot for slot, _ in demand.by_slot]
            times = [
                steps.earliest(slots, self._spare_on(row, demand), seconds, not_before, horizon)
                for steps, row in zip(few, rows.tolist(), strict=True)
            ]
            return np.array(times, dtype=np.int64)
        self._build(rows)
        last = NEVER if seconds is None else min(horizon + seconds, NEVER)
        number, begins, ends, steps = self._steps.within(rows, demand.slots[:, 0], not_before, last)
        free = self._free(rows, demand)[:, number] - steps
        same = number[1:] == number[:-1]
        usable = (demand.amounts <= free).all(axis=0) & (ends > not_before)
        before = np.concatenate(([False], usable[:-1] & same))
        after = np.concatenate((usable[1:] & same, [False]))
        starts = np.maximum(begins[usable & ~before], not_before)
        finishes = ends[usable & ~after]
        enough = (starts <= horizon) & (
            finishes == NEVER if seconds is None else (finishes == NEVER) | (finishes - starts >= seconds)
        )
        owners, firsts = np.unique(number[usable & ~before][enough], return_index=True)
        result = np.full(len(rows), NEVER, dtype=np.int64)
        result[owners] = starts[enough][firsts]
        return result

    def soonest(self, rows: Rows, demand: Demand, seconds: int | None, not_before: int) -> tuple[int, Mask]:
        """Return the first time of `earliest` on any row, and the rows that have it.

        The search looks at ever longer spans of time: on many rows, the first one that is free is mostly free soon.
        """
        not_before, span = max(not_before, self.now), _FIRST_SPAN
        free_now: Mask = np.logical_and.reduce(demand.amounts <= self._free(rows, demand), axis=0)
        while len(rows) > _SEARCHED_BY_SPANS and span <= _LAST_SPAN:
            # All other rows are as full until then as they are now.
            near: Rows = np.flatnonzero(free_now | self._changes_until(not_before + span)[rows])
            near = near[self._is_ever_free(rows[near], demand, not_before, not_before + span)]
            starts = self.earliest(rows[near], demand, seconds, not_before)
            start = int(starts.min(initial=NEVER))
            if start < not_before + span:
                at: Mask = np.zeros(len(rows), dtype=np.bool_)
                at[near[starts == start]] = True
                return start, at
            span *= _LONGER
        starts = self.earliest(rows, demand, seconds, not_before)
        start = int(starts.min(initial=NEVER))
        return start, starts == start

    def _is_ever_free(self, rows: Rows, demand: Demand, start: int, end: int) -> Mask:
        """Return whether each row has a step in a window in which the demand fits."""
        self._build(rows)
        number, *_, steps = self._steps.within(rows, demand.slots[:, 0], start, end)
        free: Mask = np.zeros(len(rows), dtype=np.bool_)
        free[number[np.logical_and.reduce(demand.amounts <= self._free(rows, demand)[:, number] - steps, axis=0)]] = (
            True
        )
        return free

    def capacities_without(
        self, plan: Sequence[Promise], rows: Rows, demand: Demand, times: Iterable[int]
    ) -> list[Amount]:
        """Return for each time the number of tasks that each row can take if nothing happens but ends of running tasks.

        There must be no other promises than those of `plan`, which are left out. The search visits all promises, not
        the step functions of the rows.
        """
        few = self._steps_of_few(rows) if len(rows) <= _SUMMED_ONE_BY_ONE else None
        if few is not None:
            return [
                np.array(
                    [
                        self._capacity_without(plan, steps, row, demand, time)
                        for steps, row in zip(few, rows.tolist(), strict=True)
                    ],
                    dtype=np.int64,
                )
                for time in times
            ]
        releases = [
            (end, row, slot, amount)
            for row, start, end, amounts, *_ in self._promises.values()
            if start is None and end is not None
            for slot, amount in amounts
        ]
        ends, on, slots, freed = np.array(releases, dtype=np.int64).reshape(-1, 4).T
        free = self._free(rows, demand)
        capacities: list[Amount] = []
        for time in times:
            released = np.zeros(self._cluster.allocatable.shape, dtype=np.int64)
            due = ends <= time
            np.add.at(released, (slots[due], on[due]), freed[due])
            capacities.append(_times(free + released[demand.slots, rows], demand))
        return capacities

    def _capacity_without(self, plan: Sequence[Promise], steps: RowSteps, row: int, demand: Demand, time: int) -> int:
        """Return the number of tasks that a row can take at a time without the promises of a plan."""
        planned: dict[int, int] = {}
        for promise in plan:
            if promise.row == row and promise.start is not None and promise.start <= time < _or_never(promise.end):
                for slot, amount in promise.amounts:
                    planned[slot] = planned.get(slot, 0) + amount
        most = NEVER
        for (slot, amount), free in zip(demand.by_slot, self._cluster.free_on(demand, row), strict=True):
            left = free - steps.at(slot, time) + planned.get(slot, 0)
            if left < 0:
                return 0
            if amount > 0:
                most = min(most, left // amount)
        return most

    def earliest_for_gang(
        self,
        rows: Rows,
        demand: Demand,
        seconds: int | None,
        count: int,
        not_before: int,
        *,
        horizon: int = NEVER,
        most_per_row: int = NEVER,
        looks: int = 256,
    ) -> int:
        """Return the first time from which `count` tasks fit at once for `seconds`; NEVER if none by the horizon.

        The search visits the times at which enough rows may have capacity. After `looks` of them it bisects the
        remaining times: the tasks fit at the resulting time, but it may not be the first such time.
        """
        if count == 1:
            return int(self.earliest(rows, demand, seconds, not_before, horizon).min(initial=NEVER))
        most = min(most_per_row, count)
        return self.gang_start(rows, demand, seconds, count, not_before, horizon, most, looks)[0]

    def gang_start(
        self,
        rows: Rows,
        demand: Demand,
        seconds: int | None,
        count: int,
        not_before: int,
        horizon: int,
        most: int,
        looks: int = 256,
    ) -> tuple[int, Amount]:
        """Return the time of `earliest_for_gang` with the tasks that each row can take then, `most` of them at most."""
        start = max(not_before, self.now)
        for _ in range(looks):
            task_capacity = np.minimum(self.task_capacity(rows, demand, start, _end(start, seconds)), most)
            if int(task_capacity.sum()) >= count:
                return start, task_capacity
            start = self._next_chance(rows, demand, seconds, task_capacity, most, count, start)
            if start == NEVER or start > horizon:
                return NEVER, task_capacity
        start = self._some_start(rows, demand, seconds, count, start, horizon, most)
        if start == NEVER:
            return NEVER, task_capacity
        return start, np.minimum(self.task_capacity(rows, demand, start, _end(start, seconds)), most)

    def _some_start(
        self, rows: Rows, demand: Demand, seconds: int | None, count: int, first: int, horizon: int, most: int
    ) -> int:
        """Return a time at which `count` tasks fit at once; NEVER if they do not fit after the rows' last change."""

        def fits(start: int) -> bool:
            task_capacity = self.task_capacity(rows, demand, start, _end(start, seconds))
            return int(np.minimum(task_capacity, most).sum()) >= count

        self._build(rows)
        begins = np.unique(self._steps.within(rows, demand.slots[:, 0], first, NEVER)[1])
        times = [first, *begins[(begins > first) & (begins <= horizon)].tolist()]
        if not fits(times[-1]):
            return NEVER
        low, high = 0, len(times) - 1
        while low < high:
            middle = (low + high) // 2
            if fits(times[middle]):
                high = middle
            else:
                low = middle + 1
        return int(times[high])

    def _next_chance(
        self, rows: Rows, demand: Demand, seconds: int | None, task_capacity: Amount, most: int, count: int, start: int
    ) -> int:
        """Return the first time after `start` by which enough rows may have gained capacity for `count` tasks."""
        wanted = demand.amounts[:, 0] > 0
        whole = self._cluster.allocatable[demand.slots[wanted], rows] // demand.amounts[wanted]
        more = np.maximum(np.minimum(whole.min(axis=0, initial=NEVER), most) - task_capacity, 0)
        times = np.full(len(rows), NEVER, dtype=np.int64)
        if int(more.sum()) >= count - int(task_capacity.sum()):
            for taken in np.unique(task_capacity[more > 0]).tolist():
                at = np.flatnonzero((task_capacity == taken) & (more > 0))
                times[at] = self.earliest(rows[at], demand.times(taken + 1), seconds, start + 1)
        order = np.argsort(times, kind="stable")
        enough = int(np.searchsorted(np.cumsum(more[order]), count - int(task_capacity.sum())))
        return int(times[order[enough]]) if enough < len(order) else NEVER

    def alternatives(
        self, rows: Rows, demand: Demand, count: int, start: int, end: int, *, horizon: int = NEVER
    ) -> Alternatives:
        """Return the nearest alternatives to `count` tasks in a window: all of them later, or fewer of them then."""
        later = self.earliest_for_gang(rows, demand, end - start, count, start, horizon=horizon)
        fewer = int(np.minimum(self.task_capacity(rows, demand, start, end), count).sum())
        return Alternatives(None if later == NEVER else later, min(fewer, count))

    def _spare_on(self, row: int, demand: Demand) -> list[int]:
        """Return by requested slot how much of a row stays free with the request."""
        free = self._cluster.free_on(demand, row)
        return [left - amount for (_, amount), left in zip(demand.by_slot, free, strict=True)]

    def _free(self, rows: Rows, demand: Demand) -> Amount:
        """Return the free amounts, bounded below so that subtracting from them does not overflow."""
        return np.maximum(self._cluster.free(demand, rows), BEGINNING)

    def _crowds(self, rows: Rows, demand: Demand, surplus: Amount) -> Mask:
        """Return the rows on which a request does not fit next to the promises beyond the amounts taken now."""
        any_slot: Mask = np.logical_or.reduce(
            (surplus > 0) & (demand.amounts > self._free(rows, demand) - surplus), axis=0
        )
        return any_slot

    def _is_crowded(self, steps: RowSteps, row: int, demand: Demand, end: int) -> bool:
        """Return whether a request does not fit on a row beside the promises until `end`, as `_crowds` does."""
        for (slot, _), left in zip(demand.by_slot, self._spare_on(row, demand), strict=True):
            if 0 < steps.highest(slot, self.now, end) > left:
                return True
        return False

    def _most_ever(self, rows: Rows, demand: Demand) -> Amount:
        """Return the peak of the promised amounts at any time relative to the amounts taken now, as [slot, row]."""
        few = self._steps_of_few(rows)
        if few is not None:
            slots = demand.slots[:, 0].tolist()
            highest = [[steps.highest_ever(slot) for steps in few] for slot in slots]
            return np.array(highest, dtype=np.int64).reshape(len(slots), len(rows))
        self._build(rows)
        return self._steps.highest_ever(rows, demand.slots)


def _times(free: Amount, demand: Demand) -> Amount:
    """Return how many times a demand fits into the free amounts of each row; not at all if any of them is negative."""
    wanted = demand.amounts[:, 0] > 0
    times = free[wanted] // demand.amounts[wanted]
    task_capacity: Amount = np.where((free < 0).any(axis=0), 0, times.min(axis=0, initial=NEVER))
    return np.maximum(task_capacity, 0)


def _or_never(end: int | None) -> int:
    return NEVER if end is None else end


def _end(start: int, seconds: int | None) -> int | None:
    return None if seconds is None else start + seconds
