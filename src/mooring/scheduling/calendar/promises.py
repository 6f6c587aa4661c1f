"""Promises on the rows of a cluster: bookings and plans that begin later, and the expected ends of running tasks.

Times are whole seconds, windows half-open. Amounts taken now are in the cluster's columns and stay taken until an end
is known. Promises only describe changes to these amounts, so an unknown end never gives capacity away.

The future of a row is a step function, which is updated when it is queried.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import Amounts
from mooring.scheduling.calendar.row_steps import RowSteps
from mooring.scheduling.calendar.step_functions import MOST_AT_ONCE, StepFunctions, steps_of
from mooring.scheduling.cluster.arrays import Amount, Demand, Mask, Rows
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster.journal import Journal

_SPAN_BITS = 8
"""The rows that change are known by spans of 256 seconds."""
_STEPS_PER_CHANGE = 8
"""A row with fewer steps than this per change is rebuilt, which then costs less than changing it in place."""
_STEPS_PER_PROMISE = 16
"""A row with more steps than this per promise is rebuilt with fewer."""

_FEW_ROWS = 4
"""If no more rows than this have promises, their step functions are kept in plain lists."""
_MANY_PROMISES = 8
"""From this number on, promises of one planned start are counted by array operations."""
_ROWS_ONE_BY_ONE = 2
"""Up to this many rows are built one by one, which then costs less than building them together."""


class Promise(NamedTuple):
    """Amounts of a row from `start` to `end` (None: open); without a start they are taken already."""

    row: int
    start: int | None
    end: int | None
    amounts: tuple[tuple[int, int], ...]
    """Pairs of the slot's position on the cluster's slot axis and the amount."""
    footprint: Footprint | None = None
    """The needs of each of its tasks beyond amounts; None for a booking, or if unknown."""
    tasks: int = 1
    firm: bool = False
    """Nothing is moved for it: work without an end may not be placed in its way, however far ahead it is."""

    @property
    def is_planned(self) -> bool:
        """Whether it belongs to the planned start of pending work."""
        return self.start is not None and self.footprint is not None


_NONE: Mapping[Hashable, Promise] = MappingProxyType({})


class Taken(Protocol):
    """The allocatable amounts of a cluster's nodes, and the amounts taken now."""

    allocatable: Amount
    taken: Amount
    changes: Journal

    @property
    def capacity(self) -> int: ...

    def slot(self, name: str) -> int: ...

    def free(self, demand: Demand, rows: Rows) -> Amount: ...

    def free_on(self, demand: Demand, row: int) -> list[int]: ...


class Promises:
    """The promises on the rows of a cluster, by key."""

    def __init__(self, cluster: Taken) -> None:
        self.now = 0
        """The current time; queries begin here at the earliest."""
        self._cluster = cluster
        self._promises: dict[Hashable, Promise] = {}
        self._of_row: dict[int, dict[Hashable, Promise]] = {}
        self._bookings: Amount = np.zeros(cluster.capacity, dtype=np.int64)
        """Number of promises that are not taken yet, by row."""
        self._firm: Amount = np.zeros(cluster.capacity, dtype=np.int64)
        """Number of those for which no running work is moved, by row."""
        self._reserved: Amount = np.zeros(cluster.capacity, dtype=np.int64)
        """Number of those that are bookings, not planned starts, by row."""
        self.booked_count = 0
        """Number of promises that are not taken yet."""
        self.revision = 0
        """Incremented whenever a promise is added or removed."""
        self.planned_count = 0
        """Number of promises for planned starts."""
        self.planned_beyond_slots = 0
        """Number of those that need more of a node than amounts and a task: devices, ports or licences."""
        self.planned_exclusive = 0
        """Number of those whose constraints keep other tasks out of their topology domains."""
        self._ahead: list[tuple[int, int, Sequence[Hashable]]] = []
        """A heap of the times at which promises begin and end. The number prevents comparison of keys."""
        self._windows: list[tuple[int, int, Sequence[Hashable]]] = []
        """The entries of promises that are not taken yet."""
        self._rows_changing: dict[int, set[int]] = {}
        """By span of time: the rows on which a promise begins or ends then. Promises that were removed stay counted."""
        self._relieved: set[int] = set()
        self._numbers = count()
        self._steps = StepFunctions(cluster.capacity, len(cluster.allocatable))
        """The promised amounts relative to those taken now."""
        self._stale = np.zeros(cluster.capacity, dtype=np.bool_)
        self._unwritten: dict[int, dict[tuple[int, int], int]] = {}
        """By stale row that can be changed in place: by time and slot, the change of the amount from then on."""
        self._row_steps: dict[int, RowSteps] = {}
        """The same as long as only few rows have promises, and few of them; always current."""
        self._booked: Rows | None = None

    def __len__(self) -> int:
        return len(self._promises)

    @property
    def booked(self) -> bool:
        """Whether any row has a promise that is not taken yet."""
        return self.booked_count > 0

    @property
    def booked_rows(self) -> Rows:
        """The rows with promises that are not taken yet."""
        if self._booked is None:
            self._booked = np.flatnonzero(self._bookings)
        return self._booked

    @property
    def steps_written(self) -> int:
        """The number of row steps written by all changes so far."""
        return self._steps.written

    def get(self, key: Hashable) -> Promise | None:
        return self._promises.get(key)

    def on(self, row: int) -> Iterable[tuple[Hashable, Promise]]:
        """Return the promises on a row."""
        return list(self._of_row.get(row, _NONE).items())

    def add(
        self, key: Hashable, row: int, start: int, end: int | None, amounts: Amounts, *, firm: bool = False
    ) -> None:
        """Promise amounts of a row for a window, in addition to those taken now."""
        self._enter(key, Promise(row, start, checked_end(start, end), self._by_slot(amounts), firm=firm))

    def remove(self, key: Hashable) -> Promise | None:
        """Remove and return a promise; an unknown one is not an error."""
        return self.remove_all((key,)).get(key)

    def remove_all(self, keys: Iterable[Hashable]) -> dict[Hashable, Promise]:
        """Remove and return the promises among these that are known."""
        removed = self._take_out_all(keys)
        self._relieved.update(promise.row for promise in removed.values() if promise.start is not None)
        return removed

    def extend(self, key: Hashable, end: int | None) -> None:
        """Change the end of a promise."""
        promise = self._known(key)
        checked = promise._replace(end=checked_end(promise.start, end))
        self.remove(key)
        self._enter(key, checked)

    def move(self, key: Hashable, row: int, start: int, end: int | None) -> None:
        """Move a promise to another row or window."""
        moved = self._known(key)._replace(row=row, start=start, end=checked_end(start, end))
        self.remove(key)
        self._enter(key, moved)

    def put_back(self, key: Hashable, promise: Promise | None) -> None:
        """Restore what `remove` returned."""
        self._take_out(key)
        if promise is not None:
            self._enter(key, promise)

    def advance(self, now: int) -> None:
        """Advance to `now`: drop ended promises; running tasks past their expected end may end any second."""
        if now >> _SPAN_BITS > self.now >> _SPAN_BITS and self._rows_changing:
            past = [span for span in self._rows_changing if span < now >> _SPAN_BITS]
            for span in past:
                del self._rows_changing[span]
        self.now = max(self.now, now)
        while self._ahead and self._ahead[0][0] <= self.now:
            time, _, keys = heappop(self._ahead)
            for key in keys:
                promise = self._promises.get(key)
                if promise is not None and promise.end == time:
                    self.remove(key)
                    if promise.start is None:
                        self._enter(key, promise._replace(end=self._overdue_end(key)))

    def _overdue_end(self, key: Hashable) -> int:
        """Return the next expected end of a running task that is past its expected end."""
        del key
        return self.now + 1

    def next_change(self) -> int | None:
        """Return the time at which the next promise that is not taken yet begins or ends; None if there is none.

        Taken amounts are released when that is reported, whatever end was expected.
        """
        while self._windows:
            time, _, keys = self._windows[0]
            known = (self._promises.get(key) for key in keys) if time > self.now else ()
            if any(promise is not None and time in (promise.start, promise.end) for promise in known):
                return time
            heappop(self._windows)
        return None

    def grow(self, capacity: int) -> None:
        """Extend the arrays to the cluster's number of rows."""
        more = capacity - len(self._stale)
        self._stale = np.concatenate((self._stale, np.zeros(more, dtype=np.bool_)))
        self._bookings = np.concatenate((self._bookings, np.zeros(more, dtype=np.int64)))
        self._firm = np.concatenate((self._firm, np.zeros(more, dtype=np.int64)))
        self._reserved = np.concatenate((self._reserved, np.zeros(more, dtype=np.int64)))
        self._steps.grow(capacity)

    def _enter(self, key: Hashable, promise: Promise) -> None:
        self._enter_all({key: promise})

    def _enter_all(self, promises: Mapping[Hashable, Promise]) -> None:
        self._take_out_all(promises)
        self._promises.update(promises)
        times: dict[tuple[int, bool], list[Hashable]] = {}
        for key, promise in promises.items():
            row, start, end, *_ = promise
            self._of_row.setdefault(row, {})[key] = promise
            if start is not None:
                times.setdefault((start, True), []).append(key)
                self._rows_changing.setdefault(start >> _SPAN_BITS, set()).add(row)
            if end is not None:
                times.setdefault((end, start is not None), []).append(key)
                self._rows_changing.setdefault(end >> _SPAN_BITS, set()).add(row)
        for (time, waits), keys in times.items():
            if time > self.now:
                entry = (time, next(self._numbers), keys)
                heappush(self._ahead, entry)
                if waits:
                    heappush(self._windows, entry)
        self._count(list(promises.values()), 1)
        if len(self._ahead) > 4 * len(self._promises) + 64:
            self._forget_outdated()

    def _changes_until(self, time: int) -> Mask:
        """Return the rows on which a promise begins or ends from now until a time, and maybe some others."""
        changing: Mask = np.zeros(len(self._stale), dtype=np.bool_)
        spans = range(self.now >> _SPAN_BITS, (time >> _SPAN_BITS) + 1)
        rows = [row for span in spans for row in self._rows_changing.get(span, ())]
        changing[rows] = True
        return changing

    def _take_out(self, key: Hashable) -> Promise | None:
        return self._take_out_all((key,)).get(key)

    def _take_out_all(self, keys: Iterable[Hashable]) -> dict[Hashable, Promise]:
        """Take out and return the promises among these that are known."""
        taken: dict[Hashable, Promise] = {}
        for key in keys:
            promise = self._promises.pop(key, None)
            if promise is not None:
                del self._of_row[promise.row][key]
                taken[key] = promise
        if taken:
            self._count(list(taken.values()), -1)
        return taken

    def _count(self, promises: Sequence[Promise], sign: int) -> None:
        self.revision += 1
        for promise in promises:
            self._stale[promise.row] = True
        if self._row_steps:
            if len(self._of_row) > _FEW_ROWS:
                self._row_steps = {}
            self._change_row_steps(promises, sign)
        if self._steps.has_spread:
            for promise in promises:
                if self._steps.is_spread(promise.row):
                    self._note_unwritten(promise, sign)
        waiting = [promise for promise in promises if promise.start is not None]
        if waiting:
            self._count_waiting(waiting, sign)
        if self.booked_count or waiting:
            changed = [each.row for each in promises if each.start is not None or self._bookings[each.row]]
            self._cluster.changes.note(changed)

    def _count_waiting(self, promises: Sequence[Promise], sign: int) -> None:
        """Count promises that are not taken yet."""
        self.booked_count += sign * len(promises)
        footprint = promises[0].footprint
        shared = footprint is not None and all(each.footprint is footprint for each in promises)
        if footprint is not None and shared and len(promises) >= _MANY_PROMISES:
            rows = [each.row for each in promises]
            np.add.at(self._bookings, rows, sign)
            np.add.at(self._firm, rows, sign)
            self._booked = None
            self.planned_count += sign * len(promises)
            self.planned_beyond_slots += sign * len(promises) * footprint.is_beyond_slots
            self.planned_exclusive += sign * len(promises) * footprint.keeps_others_away
            return
        for number, (row, _, _, _, footprint, _, firm) in enumerate(promises):
            self._bookings[row] += sign
            if self._bookings[row] == (sign > 0):
                self._booked = None
            if footprint is None:
                self._reserved[row] += sign
            else:
                if not number or footprint is not promises[number - 1].footprint:
                    beyond_slots, exclusive = footprint.is_beyond_slots, footprint.keeps_others_away
                self.planned_count += sign
                self.planned_beyond_slots += sign * beyond_slots
                self.planned_exclusive += sign * exclusive
            if firm or footprint is not None:
                self._firm[row] += sign

    def _forget_outdated(self) -> None:
        times = [(time, key) for key, each in self._promises.items() for time in (each.start, each.end)]
        self._ahead = [
            (time, next(self._numbers), (key,)) for time, key in times if time is not None and time > self.now
        ]
        self._windows = [entry for entry in self._ahead if self._promises[entry[2][0]].start is not None]
        heapify(self._ahead)
        heapify(self._windows)

    def _known(self, key: Hashable) -> Promise:
        promise = self._promises.get(key)
        if promise is None:
            raise InvalidInput(f"nothing is promised under {key}", code="no-such-promise")
        return promise

    def _by_slot(self, amounts: Amounts) -> tuple[tuple[int, int], ...]:
        return tuple((self._cluster.slot(name), amount) for name, amount in amounts.items())

    def _lasting(self, row: int) -> list[int]:
        """Return by slot the amounts of a row that are taken without an end."""
        lasting: list[int] = self._cluster.taken[:, row].tolist()
        for _, promise in self.on(row):
            for slot, amount in promise.amounts if promise.start is None else ():
                lasting[slot] -= amount
        return [max(amount, 0) for amount in lasting]

    def _steps_of_few(self, rows: Rows) -> list[RowSteps] | None:
        """Return the step functions of a few rows with few promises; None if there are many of either."""
        if len(self._of_row) > _FEW_ROWS or len(rows) > _FEW_ROWS:
            return None
        found: list[RowSteps] = []
        for row in rows.tolist():
            steps = self._steps_of_one(row)
            if steps is None:
                return None
            found.append(steps)
        return found

    def _steps_of_one(self, row: int) -> RowSteps | None:
        """Return the step function of one row; None if it, or too many rows, have many promises."""
        steps = self._row_steps.get(row)
        if steps is not None or len(self._of_row) > _FEW_ROWS:
            return steps
        promises = self._of_row.get(row, _NONE)
        if len(promises) > MOST_AT_ONCE:
            return None
        steps = RowSteps()
        for _, start, end, amounts, *_ in promises.values():
            steps.add(start, end, amounts, 1)
        if promises:
            self._row_steps[row] = steps
        return steps

    def _change_row_steps(self, promises: Iterable[Promise], sign: int) -> None:
        for row, start, end, amounts, *_ in promises:
            steps = self._row_steps.get(row)
            if steps is None:
                continue
            if len(self._of_row[row]) > MOST_AT_ONCE:
                del self._row_steps[row]
            else:
                steps.add(start, end, amounts, sign)

    def _build(self, rows: Rows) -> None:
        if self._steps.slots != len(self._cluster.allocatable):
            self._steps.widen(len(self._cluster.allocatable))
        stale = rows[self._stale[rows]]
        if not len(stale):
            return
        self._stale[stale] = False
        several: list[int] = []
        for row in stale.tolist():
            if self._steps.is_spread(row) or len(self._of_row.get(row, ())) > MOST_AT_ONCE:
                self._build_row(row)
            else:
                several.append(row)
        if len(several) <= _ROWS_ONE_BY_ONE:
            for row in several:
                self._build_row(row)
        else:
            self._steps.build_several(np.array(several, dtype=np.intp), *self._changes_of(several))

    def _build_row(self, row: int) -> None:
        """Update a row, in place if it has many promises of which few have changed."""
        unwritten, steps = self._unwritten.pop(row, {}), self._steps.steps_of(row)
        few = _STEPS_PER_CHANGE * len(unwritten) <= steps <= _STEPS_PER_PROMISE * len(self._of_row.get(row, ()))
        if self._steps.is_spread(row) and few:
            self._steps.change(row, unwritten)
        else:
            _, times, amounts = steps_of(*self._changes_of([row]), rows=1, slots_in_all=self._steps.slots)
            self._steps.build(row, times, amounts)

    def _note_unwritten(self, promise: Promise, sign: int) -> None:
        """Note the changes of a promise to its row; changes that cancel out before a query disappear."""
        changes = self._unwritten.setdefault(promise.row, {})
        for time, direction in ((promise.start, sign), (promise.end, -sign)):
            if time is None:
                continue
            for slot, amount in promise.amounts:
                changed = changes.pop((time, slot), 0) + direction * amount
                if changed:
                    changes[time, slot] = changed

    def _changes_of(self, rows: Iterable[int]) -> tuple[Rows, Amount, Rows, Amount]:
        """Return the changes of the promised amounts: the position of the row, the time, the slot and the amount."""
        changes: list[tuple[int, int, int, int]] = []
        for number, row in enumerate(rows):
            for _, start, end, amounts, *_ in self._of_row.get(row, _NONE).values():
                for slot, amount in amounts:
                    if start is not None:
                        changes.append((number, start, slot, amount))
                    if end is not None:
                        changes.append((number, end, slot, -amount))
        numbers, times, slots, added = np.array(changes, dtype=np.int64).reshape(-1, 4).T
        return numbers, times, slots, added


def checked_end(start: int | None, end: int | None) -> int | None:
    if start is not None and end is not None and end <= start:
        raise InvalidInput(f"a promise ends at {end}, which is not after its start at {start}", code="empty-window")
    return end
