"""What is promised of every node over time: bookings that begin later, and when what runs now is expected to end.

Times are whole seconds, windows half-open. What is taken now stands in the cluster's columns and stays taken until an
end is told; the timeline holds only how that changes, so that whatever was not told is never given away.

A row's future is a step function: its breakpoints in order, and over the steps a tree of their maxima. Rows are built
when they are asked about. A question costs the logarithm of a row's breakpoints and is put to all rows at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np

from mooring.model.errors import InvalidInput
from mooring.model.slots import Amounts
from mooring.model.workloads import LONG_AGO
from mooring.scheduling.arrays import Amount, Demand, Mask, Rows
from mooring.scheduling.journal import Journal

NEVER = 1 << 62
"""The end of what is open, and the start of what fits at no time."""
_BEGINNING = -NEVER
_LOWEST = -(1 << 62)
"""Below every step."""
_FEW = 4
"""So few rows are looked at one by one: what all rows do at once has its price."""


def seconds_of(time: datetime) -> int:
    """A time as whole seconds, rounded down."""
    elapsed = time - LONG_AGO
    return elapsed.days * 86_400 + elapsed.seconds


def time_of(seconds: int) -> datetime:
    return LONG_AGO + timedelta(seconds=seconds)


_NOTHING: Mapping[UUID, tuple[int, Amounts]] = MappingProxyType({})


class Promise(NamedTuple):
    """Amounts of a row from `start` to `end`, None for open; without a start they are taken already."""

    row: int
    start: int | None
    end: int | None
    amounts: tuple[tuple[int, int], ...]
    """Each by the place of its slot on the cluster's slot axis."""


class Alternatives(NamedTuple):
    """What is possible in place of so many tasks in a window: later, or fewer of them."""

    start: int | None
    """From when on all of them fit for as long; None: not before the horizon."""
    tasks: int
    """How many fit in the window that was asked for."""


class Taken(Protocol):
    """What the nodes of a cluster have, and what of it is taken now."""

    allocatable: Amount
    taken: Amount
    changes: Journal

    @property
    def capacity(self) -> int: ...

    def slot(self, name: str) -> int: ...

    def free(self, demand: Demand, rows: Rows) -> Amount: ...


class Timeline:
    """The promises on the rows of a cluster. What is added is undone by removing it, and the other way round."""

    def __init__(self, cluster: Taken) -> None:
        self.now = 0
        """What is asked about begins here at the earliest."""
        self._cluster = cluster
        self._promises: dict[Hashable, Promise] = {}
        self._of_row: dict[int, dict[Hashable, None]] = {}
        self._bookings: Counter[int] = Counter()
        """Per row how many promises are not taken yet."""
        self._ahead: list[tuple[int, int, Hashable]] = []
        """When promises begin and end, the next first. The number keeps keys from being compared."""
        self._windows: list[tuple[int, int, Hashable]] = []
        """Those of them that are not taken yet."""
        self._plans: dict[str, dict[UUID, list[Hashable]]] = {}
        """Per pool under which keys the planned starts of waiting work are promised."""
        self._relieved: set[int] = set()
        self._dropped: list[Promise] = []
        """Planned starts that were forgotten to be planned anew."""
        self._numbers = count()
        self._stale = np.zeros(cluster.capacity, dtype=np.bool_)
        self._booked: Rows | None = None
        self._offset = np.zeros(cluster.capacity, dtype=np.int64)
        self._size = np.ones(cluster.capacity, dtype=np.int64)
        self._used = np.ones(cluster.capacity, dtype=np.int64)
        # The first step is that of all rows of which nothing is promised.
        self._length = 1
        self._unused: dict[int, list[int]] = {}
        self._guessed: dict[Hashable, Promise | None] = {}
        """By what is guessed to come back: when it does so at the latest, None for open."""
        self._times: Amount = np.full(64, _BEGINNING, dtype=np.int64)
        self._tree: Amount = np.zeros((128, len(cluster.allocatable)), dtype=np.int64)
        self._always: Amount = np.zeros((len(cluster.allocatable), cluster.capacity), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._promises)

    @property
    def booked(self) -> bool:
        """Whether there is a row of which more is promised later than now."""
        return bool(self._bookings)

    @property
    def booked_rows(self) -> Rows:
        """The rows of which something is promised that is not taken yet."""
        if self._booked is None:
            self._booked = np.array(sorted(self._bookings), dtype=np.intp)
        return self._booked

    def get(self, key: Hashable) -> Promise | None:
        return self._promises.get(key)

    def on(self, row: int) -> Iterable[tuple[Hashable, Promise]]:
        """What is promised of a row."""
        return [(key, self._promises[key]) for key in self._of_row.get(row, ())]

    def add(self, key: Hashable, row: int, start: int, end: int | None, amounts: Amounts) -> None:
        """Promise amounts of a row for a window, beyond what is taken now."""
        self._enter(key, Promise(row, start, _checked(start, end), self._by_slot(amounts)))

    def expect(self, key: Hashable, row: int, end: int, amounts: Amounts) -> None:
        """Amounts that are taken now come back at `end`."""
        self._enter(key, Promise(row, None, max(end, self.now + 1), self._by_slot(amounts)))

    def tell(
        self,
        row: int,
        ends: Mapping[UUID, tuple[int, Amounts]],
        guessed: Mapping[UUID, tuple[int, Amounts]] = _NOTHING,
    ) -> None:
        """When what is taken of a row comes back, as far as that is known; what was expected there before is void.

        `guessed`: when it does so usually, in place of when it does so at the latest, which nobody may count on.
        """
        for key in [key for key in self._of_row.get(row, ()) if self._promises[key].start is None]:
            self._take_out(key)
            self._guessed.pop(key, None)
        if row in self._bookings:
            self._relieved.add(row)
        for key, (end, amounts) in ends.items():
            self.expect(key, row, end, amounts)
        for key, (end, amounts) in guessed.items():
            self._guessed[key] = self._promises.get(key)
            self.expect(key, row, end, amounts)

    @contextmanager
    def without_guesses(self, rows: Rows) -> Iterator[None]:
        """As it is if what runs on these rows goes on for as long as it may."""
        guessed = self._guessed
        asked = rows.tolist() if guessed else ()
        guesses = [(key, promise) for row in asked for key, promise in self.on(row) if key in guessed]
        for key, _ in guesses:
            self.put_back(key, guessed[key])
        try:
            yield
        finally:
            for key, promise in guesses:
                self.put_back(key, promise)

    def remove(self, key: Hashable) -> Promise | None:
        """Forget a promise; one that is not known is no error."""
        promise = self._take_out(key)
        if promise is not None and promise.start is not None:
            self._relieved.add(promise.row)
        return promise

    def extend(self, key: Hashable, end: int | None) -> None:
        """Let a promise end at another time."""
        promise = self._known(key)
        checked = promise._replace(end=_checked(promise.start, end))
        self.remove(key)
        self._enter(key, checked)

    def move(self, key: Hashable, row: int, start: int, end: int | None) -> None:
        """Keep what was promised in another place or window."""
        moved = self._known(key)._replace(row=row, start=start, end=_checked(start, end))
        self.remove(key)
        self._enter(key, moved)

    def put_back(self, key: Hashable, promise: Promise | None) -> None:
        """What `remove` took away."""
        self._take_out(key)
        if promise is not None:
            self._enter(key, promise)

    def plan(
        self, pool: str, owner: UUID, place: Hashable, row: int, start: int, end: int | None, amounts: Amounts
    ) -> None:
        """Promise amounts for the planned start of waiting work in a pool, until that is planned anew."""
        key = (owner, place)
        self._plans.setdefault(pool, {}).setdefault(owner, []).append(key)
        self.add(key, row, start, end, amounts)

    def drop_plans(self, pools: Collection[str]) -> None:
        """Forget the planned starts of these pools, which are planned anew."""
        for pool in pools if self._plans else ():
            for keys in self._plans.pop(pool, {}).values():
                self._dropped += [promise for key in keys if (promise := self._take_out(key)) is not None]

    def drop_plan(self, owner: UUID) -> None:
        """Forget the planned start of work that waits no more."""
        for plans in self._plans.values():
            for key in plans.pop(owner, ()):
                self.remove(key)

    @property
    def relieved(self) -> set[int]:
        """The rows of which less may be promised at some time than when they were taken from here last."""
        if self._dropped:
            kept = {self._as_planned(promise) for promise in self._planned()}
            self._relieved.update(each.row for each in self._dropped if self._as_planned(each) not in kept)
            self._dropped = []
        return self._relieved

    def take_relieved(self) -> Rows:
        rows = np.array(sorted(self.relieved), dtype=np.intp)
        self._relieved = set()
        return rows

    def next_plan(self, pool: str) -> int | None:
        """When the next planned start of a pool is; None: there is none."""
        return min((each.start for each in self._planned(pool) if each.start is not None), default=None)

    @contextmanager
    def without_plan(self, owner: UUID) -> Iterator[None]:
        """As it is without what was planned for some work, so that it is not in its own way."""
        kept = [(key, self._take_out(key)) for plans in self._plans.values() for key in plans.get(owner, ())]
        try:
            yield
        finally:
            for key, promise in kept:
                self.put_back(key, promise)

    def clear(self, row: int) -> None:
        """The row holds no node any more."""
        for key in list(self._of_row.get(row, ())):
            self.remove(key)
            self._guessed.pop(key, None)

    def advance(self, now: int) -> None:
        """The time is `now`: what ended is forgotten, and what should have ended may do so any second."""
        self.now = max(self.now, now)
        while self._ahead and self._ahead[0][0] <= self.now:
            time, _, key = heappop(self._ahead)
            promise = self._promises.get(key)
            if promise is not None and promise.end == time:
                self.remove(key)
                if promise.start is None:
                    self._enter(key, promise._replace(end=self.now + 1))

    def next_change(self) -> int | None:
        """When the next promise that is not taken yet begins or ends; None: never.

        What is taken comes back when somebody says so, whatever was expected.
        """
        while self._windows:
            time, _, key = self._windows[0]
            promise = self._promises.get(key)
            if time > self.now and promise is not None and time in (promise.start, promise.end):
                return time
            heappop(self._windows)
        return None

    def surplus(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """By how much more (or less) than now is promised at most at one moment of a window, as [slot, row]."""
        start, end = max(start, self.now), NEVER if end is None else end
        self._build(rows)
        slots = demand.slots[:, 0]
        if len(rows) <= _FEW:
            return np.array([self._peak_of(row, start, end)[slots] for row in rows.tolist()], dtype=np.int64).T
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

    def peaks(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """The most that is promised of the requested slots at one moment of a window, as [slot, row]."""
        peaks: Amount = self._cluster.taken[demand.slots, rows] + self.surplus(rows, demand, start, end)
        return peaks

    def fits(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Mask:
        """The one fit rule for the whole window: what is promised and the request are at most what is allocatable."""
        free = self._free(rows, demand) - self.surplus(rows, demand, start, end)
        every_slot: Mask = np.logical_and.reduce(demand.amounts <= free, axis=0)
        return every_slot

    def room(self, rows: Rows, demand: Demand, start: int, end: int | None) -> Amount:
        """How many tasks with a demand each row could take for the whole window."""
        free = self._free(rows, demand) - self.surplus(rows, demand, start, end)
        wanted = demand.amounts[:, 0] > 0
        times = free[wanted] // demand.amounts[wanted]
        room: Amount = np.where((free < 0).any(axis=0), 0, times.min(axis=0, initial=NEVER))
        return np.maximum(room, 0)

    def free_always(self, rows: Rows, demand: Demand) -> Amount:
        """What is left of the requested slots now and at every later time, as [slot, row]."""
        return self._free(rows, demand) - self._most_ever(rows, demand)

    def conflicts(self, rows: Rows, demand: Demand, seconds: int | None) -> Rows:
        """The rows where a task that starts now, for so long (None: open), touches a booking that it cannot be beside.

        Whether it fits now is not asked here.
        """
        rows = rows[self._crowds(rows, demand, self._most_ever(rows, demand))]
        if len(rows) and seconds is not None:
            rows = rows[self._crowds(rows, demand, self.surplus(rows, demand, self.now, self.now + max(seconds, 1)))]
        return rows

    def fits_instead(self, row: int, demand: Demand, seconds: int | None, leaving: Mapping[UUID, Amounts]) -> bool:
        """Whether a task that starts now, for so long (None: open), fits beside what is booked of a row once others
        have left it: they would have ended sooner, maybe. What is only planned is planned anew."""
        planned = [key for plans in self._plans.values() for keys in plans.values() for key in keys]
        out = {key: self._promises[key] for key in (*leaving, *planned) if key in self._of_row.get(row, ())}
        for key in out:
            self._take_out(key)
        rows = np.array([row], dtype=np.intp)
        end = None if seconds is None else self.now + max(seconds, 1)
        free = self._free(rows, demand) - self.surplus(rows, demand, self.now, end)
        for key, promise in out.items():
            self.put_back(key, promise)
        freed = [[sum(amounts.get(name, 0) for amounts in leaving.values())] for name in demand.names]
        return bool((demand.amounts <= free + freed).all())

    def earliest(
        self, rows: Rows, demand: Demand, seconds: int | None, not_before: int, horizon: int = NEVER
    ) -> Amount:
        """Per row the first time from which a request fits for so long (None: for ever); NEVER if not by the horizon.

        One look at every step of the rows, however many of them block.
        """
        not_before = max(not_before, self.now)
        self._build(rows)
        used = self._used[rows]
        total = int(used.sum())
        number = np.repeat(np.arange(len(rows)), used)
        within = np.arange(total) - np.repeat(np.cumsum(used) - used, used)
        offset = self._offset[rows][number]
        begins = self._times[offset + within]
        last = within == used[number] - 1
        ends = np.where(last, NEVER, self._times[np.minimum(offset + within + 1, len(self._times) - 1)])
        steps = self._tree[(2 * offset + self._size[rows][number] + within)[:, None], demand.slots[:, 0]]
        free = self._free(rows, demand)[:, number] - steps.T
        usable = (demand.amounts <= free).all(axis=0) & (ends > not_before)
        before = np.concatenate(([False], usable[:-1])) & (within > 0)
        after = np.concatenate((usable[1:], [False])) & ~last
        starts = np.maximum(begins[usable & ~before], not_before)
        finishes = ends[usable & ~after]
        enough = (starts <= horizon) & (
            finishes == NEVER if seconds is None else (finishes == NEVER) | (finishes - starts >= seconds)
        )
        owners, firsts = np.unique(number[usable & ~before][enough], return_index=True)
        result = np.full(len(rows), NEVER, dtype=np.int64)
        result[owners] = starts[enough][firsts]
        return result

    def earliest_together(
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
        """The first time from which so many tasks fit at once for so long; NEVER if not by the horizon.

        It goes from one time at which enough rows may have room to the next, and gives up after so many looks.
        """
        if count == 1:
            return int(self.earliest(rows, demand, seconds, not_before, horizon).min(initial=NEVER))
        start, most = max(not_before, self.now), min(most_per_row, count)
        for _ in range(looks):
            end = None if seconds is None else start + seconds
            room = np.minimum(self.room(rows, demand, start, end), most)
            if int(room.sum()) >= count:
                return start
            start = self._next_chance(rows, demand, seconds, room, most, count, start)
            if start == NEVER or start > horizon:
                break
        return NEVER

    def alternatives(
        self, rows: Rows, demand: Demand, count: int, start: int, end: int, *, horizon: int = NEVER
    ) -> Alternatives:
        """The nearest to so many tasks in a window: all of them later, or fewer of them then."""
        later = self.earliest_together(rows, demand, end - start, count, start, horizon=horizon)
        fewer = int(np.minimum(self.room(rows, demand, start, end), count).sum())
        return Alternatives(None if later == NEVER else later, min(fewer, count))

    def grow(self, capacity: int) -> None:
        """The cluster has so many rows."""
        more = capacity - len(self._offset)
        self._offset = np.concatenate((self._offset, np.zeros(more, dtype=np.int64)))
        self._size = np.concatenate((self._size, np.ones(more, dtype=np.int64)))
        self._used = np.concatenate((self._used, np.ones(more, dtype=np.int64)))
        self._stale = np.concatenate((self._stale, np.zeros(more, dtype=np.bool_)))
        self._always = np.concatenate((self._always, np.zeros((len(self._always), more), dtype=np.int64)), axis=1)

    def _planned(self, *pools: str) -> Iterator[Promise]:
        """What is promised for planned starts, of these pools or of all."""
        for pool in pools or self._plans:
            for keys in self._plans.get(pool, {}).values():
                yield from (self._promises[key] for key in keys if key in self._promises)

    def _as_planned(self, promise: Promise) -> Promise:
        """A planned start that waits for what may end any second is the same a second later."""
        return promise._replace(start=max(promise.start or 0, self.now + 2), end=None)

    def _take_out(self, key: Hashable) -> Promise | None:
        promise = self._promises.pop(key, None)
        if promise is not None:
            self._of_row[promise.row].pop(key)
            self._count(promise, -1)
        return promise

    def _enter(self, key: Hashable, promise: Promise) -> None:
        self._take_out(key)
        self._promises[key] = promise
        self._of_row.setdefault(promise.row, {})[key] = None
        for time in (promise.start, promise.end):
            if time is not None and time > self.now:
                entry = (time, next(self._numbers), key)
                heappush(self._ahead, entry)
                if promise.start is not None:
                    heappush(self._windows, entry)
        self._count(promise, 1)
        if len(self._ahead) > 4 * len(self._promises) + 64:
            self._forget_outdated()

    def _count(self, promise: Promise, sign: int) -> None:
        row = promise.row
        self._stale[row] = True
        if promise.start is not None:
            self._bookings[row] += sign
            if self._bookings[row] <= (1 if sign > 0 else 0):
                self._booked = None
                self._bookings += Counter()
        if row in self._bookings or promise.start is not None:
            self._cluster.changes.note((row,))

    def _known(self, key: Hashable) -> Promise:
        promise = self._promises.get(key)
        if promise is None:
            raise InvalidInput(f"nothing is promised under {key}", code="no-such-promise")
        return promise

    def _by_slot(self, amounts: Amounts) -> tuple[tuple[int, int], ...]:
        return tuple((self._cluster.slot(name), amount) for name, amount in amounts.items())

    def _free(self, rows: Rows, demand: Demand) -> Amount:
        """What is free now; what is absurdly little stays so when something is taken from it."""
        return np.maximum(self._cluster.free(demand, rows), _BEGINNING)

    def _forget_outdated(self) -> None:
        times = [(time, key) for key, each in self._promises.items() for time in (each.start, each.end)]
        self._ahead = [(time, next(self._numbers), key) for time, key in times if time is not None and time > self.now]
        self._windows = [entry for entry in self._ahead if self._promises[entry[2]].start is not None]
        heapify(self._ahead)
        heapify(self._windows)

    def _crowds(self, rows: Rows, demand: Demand, surplus: Amount) -> Mask:
        """Where a request is too much beside what is promised beyond what is taken now."""
        any_slot: Mask = np.logical_or.reduce(
            (surplus > 0) & (demand.amounts > self._free(rows, demand) - surplus), axis=0
        )
        return any_slot

    def _most_ever(self, rows: Rows, demand: Demand) -> Amount:
        """By how much more than now is promised at most at one later time, as [slot, row]."""
        self._build(rows)
        return self._always[demand.slots, rows]

    def _next_chance(
        self, rows: Rows, demand: Demand, seconds: int | None, room: Amount, most: int, count: int, start: int
    ) -> int:
        """The first time after `start` before which too few rows can take more than their room then for `count`."""
        wanted = demand.amounts[:, 0] > 0
        whole = self._cluster.allocatable[demand.slots[wanted], rows] // demand.amounts[wanted]
        more = np.maximum(np.minimum(whole.min(axis=0, initial=NEVER), most) - room, 0)
        times = np.full(len(rows), NEVER, dtype=np.int64)
        if int(more.sum()) >= count - int(room.sum()):
            for taken in np.unique(room[more > 0]).tolist():
                at = np.flatnonzero((room == taken) & (more > 0))
                times[at] = self.earliest(rows[at], demand.times(taken + 1), seconds, start + 1)
        order = np.argsort(times, kind="stable")
        enough = int(np.searchsorted(np.cumsum(more[order]), count - int(room.sum())))
        return int(times[order[enough]]) if enough < len(order) else NEVER

    def _peak_of(self, row: int, start: int, end: int) -> Amount:
        """The highest of the steps of one row in a window, looked at one after the other."""
        offset, leaves = int(self._offset[row]), int(2 * self._offset[row] + self._size[row])
        times = self._times[offset : offset + int(self._used[row])]
        low = int(times.searchsorted(start, side="right")) - 1
        high = max(int(times.searchsorted(end)), low + 1)
        highest: Amount = self._tree[leaves + low : leaves + high].max(axis=0)
        return highest

    def _steps_until(self, rows: Rows, time: int, *, including: bool) -> Amount:
        """How many breakpoints of each row come before a time, or at it; all rows take a step of the search at once."""
        offset = self._offset[rows]
        low, high = np.zeros(len(rows), dtype=np.int64), self._used[rows].copy()
        for _ in range(int(high.max(initial=1)).bit_length()):
            middle = (low + high) >> 1
            found = self._times[offset + np.minimum(middle, high - 1)]
            before = (found <= time if including else found < time) & (low < high)
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, np.minimum(middle, high))
        return low

    def _build(self, rows: Rows) -> None:
        if self._tree.shape[1] != len(self._cluster.allocatable):
            self._widen()
        for row in rows[self._stale[rows]].tolist():
            self._build_row(row)

    def _build_row(self, row: int) -> None:
        self._stale[row] = False
        times, steps = self._steps(row)
        used = len(times)
        size = 1 << (used - 1).bit_length()
        if size != self._size[row] or self._offset[row] == 0:
            self._give_back(row)
            self._offset[row] = self._take(size) if used > 1 else 0
            self._size[row] = size
        self._used[row] = used
        self._always[:, row] = np.maximum(steps.max(axis=0), 0)
        if used == 1:
            return
        offset = int(self._offset[row])
        self._times[offset : offset + used] = times
        tree = self._tree[2 * offset : 2 * (offset + size)]
        tree[size : size + used] = steps
        tree[size + used :] = _LOWEST
        while size > 1:
            half = size >> 1
            np.maximum(tree[size : 2 * size : 2], tree[size + 1 : 2 * size : 2], out=tree[half:size])
            size = half

    def _steps(self, row: int) -> tuple[Amount, Amount]:
        """The breakpoints of a row, and by how much more than now is promised from each on, as [step, slot]."""
        changes: list[tuple[int, int, int]] = []
        for key in self._of_row.get(row, ()):
            _, start, end, amounts = self._promises[key]
            for slot, amount in amounts:
                if start is not None:
                    changes.append((start, slot, amount))
                if end is not None:
                    changes.append((end, slot, -amount))
        moments, slots, added = np.array(changes, dtype=np.int64).reshape(-1, 3).T
        times, numbers = np.unique(moments, return_inverse=True)
        steps = np.zeros((len(times) + 1, self._tree.shape[1]), dtype=np.int64)
        np.add.at(steps, (numbers.reshape(-1) + 1, slots), added)
        np.cumsum(steps, axis=0, out=steps)
        return np.concatenate(([_BEGINNING], times)), steps

    def _take(self, size: int) -> int:
        """Room for the steps of a row."""
        free = self._unused.get(size)
        if free:
            return free.pop()
        offset, self._length = self._length, self._length + size
        if self._length > len(self._times):
            more = max(self._length, 2 * len(self._times)) - len(self._times)
            self._times = np.concatenate((self._times, np.zeros(more, dtype=np.int64)))
            self._tree = np.concatenate((self._tree, np.zeros((2 * more, self._tree.shape[1]), dtype=np.int64)))
        return offset

    def _give_back(self, row: int) -> None:
        if self._offset[row]:
            self._unused.setdefault(int(self._size[row]), []).append(int(self._offset[row]))

    def _widen(self) -> None:
        """The cluster has more slots than it had."""
        more = len(self._cluster.allocatable) - self._tree.shape[1]
        self._tree = np.concatenate((self._tree, np.zeros((len(self._tree), more), dtype=np.int64)), axis=1)
        self._always = np.concatenate((self._always, np.zeros((more, self._always.shape[1]), dtype=np.int64)))


def _checked(start: int | None, end: int | None) -> int | None:
    if start is not None and end is not None and end <= start:
        raise InvalidInput(f"a promise ends at {end}, which is not after its start at {start}", code="empty-window")
    return end
