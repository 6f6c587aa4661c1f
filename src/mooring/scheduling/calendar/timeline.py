"""The timeline of a cluster: bookings, expected ends of running tasks, and planned starts of pending workloads.

The promises themselves are in `promises`, the queries in `capacity_queries`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.model.resources.slots import Amounts
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.capacity_queries import CapacityQueries
from mooring.scheduling.calendar.prediction.corrections import corrected_end
from mooring.scheduling.calendar.promises import Promise, Taken, checked_end
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.cluster.arrays import Amount, Demand, Mask, Rows
from mooring.scheduling.cluster.footprints import Footprint

_NOTHING: Mapping[UUID, tuple[int, Amounts]] = MappingProxyType({})
_NO_FOOTPRINTS: Mapping[UUID, Footprint] = MappingProxyType({})
_ENDED_GUESSES = 64
"""Guesses of ended tasks that are kept, in addition to twice the number of promises."""


class Suspended(NamedTuple):
    """A planned start that is temporarily taken out of the timeline."""

    pool: str
    owner: UUID
    key: Hashable
    promise: Promise


class Expected(NamedTuple):
    """A running task on a row, the time at which it ends, and everything that it then releases."""

    row: int
    end: int
    amounts: Amounts
    footprint: Footprint | None = None
    guessed_end: int | None = None
    """The expected end, if that is earlier; no booking may rely on it."""


class _Guess(NamedTuple):
    latest: Promise | None
    """The promise with the latest end; None if that is open."""
    end: int
    """The expected end before corrections."""


class Timeline(CapacityQueries):
    """The promises on the rows of a cluster. Adding and removing are inverse to each other."""

    def __init__(self, cluster: Taken) -> None:
        super().__init__(cluster)
        self.open_ended_notice: dict[str, int] = {}
        """By pool: how many seconds ahead a booking must be for work without an end to be placed in its way."""
        self.displacing: set[str] = set()
        """The pools whose new bookings may use the capacity of work without an end."""
        self._plans: dict[str, dict[UUID, list[Hashable]]] = {}
        """By pool and workload: the keys of the promises for planned starts of pending work."""
        self._dropped: list[Promise] = []
        """Planned starts that were dropped to be planned anew."""
        self._first_start = -1, 0
        """The first planned start, and the revision of the promises to which it belongs."""
        self._guessed: dict[Hashable, _Guess] = {}
        """The tasks whose ends are guessed."""

    def allow_open_ended(self, pool: str, notice_seconds: int | None, *, displaced: bool = False) -> None:
        """Allow a pool's work without an end to be placed where bookings are at least this far ahead; None: never.

        `displaced`: new bookings may use the capacity of such work.
        """
        (self.displacing.add if displaced else self.displacing.discard)(pool)
        if self.open_ended_notice.get(pool) == notice_seconds:
            return
        self.open_ended_notice.pop(pool, None)
        if notice_seconds is not None:
            self.open_ended_notice[pool] = notice_seconds
        booked = self.booked_rows.tolist()
        self._relieved.update(booked)
        self._cluster.changes.note(booked)

    def notice(self, workload: Workload) -> int | None:
        """Return for how many seconds capacity must be unbooked for work without an end.

        None if that is indefinitely, or if the work has an end. The stop grace is included: tasks are stopped that long
        before a booking takes their capacity.
        """
        seconds = self.open_ended_notice.get(workload.pool) if workload.longest_seconds is None else None
        return None if seconds is None else seconds + workload.stop_grace_seconds

    def planned_seconds(self, workload: Workload) -> int | None:
        """Return for how many seconds a planned start needs its capacity; None: indefinitely.

        Work that is moved for bookings starts where it may run for its notice: a longer one would take booked capacity.
        Predictions count only while nothing is booked.
        """
        notice = self.notice(workload)
        if notice is not None:
            return notice
        return workload.expected_seconds if self.booked_count == self.planned_count else workload.longest_seconds

    def closed_to(self, workload: Workload, rows: Rows, demand: Demand) -> Rows:
        """Return the rows on which the workload conflicts with a booking or a planned start if it starts now.

        Against planned starts it counts for the gap that it needs. Against bookings it counts until its latest end, and
        so do the tasks on their rows.
        """
        notice, promised = self.notice(workload), workload.booking is not None
        longest, gap = workload.longest_seconds, workload.gap_seconds
        if gap is not None and self.now + max(gap, 1) <= self._first_planned_start():
            return rows[:0]
        reserved = self._resting_on_guesses(rows, workload)
        if reserved is None:
            return self.conflicts(rows, demand, gap, notice, promised=promised)
        closed = self.conflicts(rows[~reserved], demand, gap, notice, promised=promised)
        with self.without_guesses(rows[reserved]):
            closed_by_bookings = self.conflicts(rows[reserved], demand, longest, notice, promised=promised)
        return np.concatenate((closed, closed_by_bookings))

    def _first_planned_start(self) -> int:
        """Return the time before which nothing is promised but the ends of running tasks, if that is known: else 0."""
        if self.booked_count != self.planned_count:
            return 0
        revision, first = self._first_start
        if revision != self.revision:
            first = min((each.start for each in self._all_planned() if each.start is not None), default=NEVER)
            self._first_start = self.revision, first
        return first

    def is_closed_to(self, workload: Workload, row: int, demand: Demand) -> bool | None:
        """Return whether one row is among `closed_to`; None if that takes more than a look at a few planned starts."""
        if not self._bookings.item(row):
            return False
        seconds = workload.gap_seconds
        if seconds is None or workload.booking is not None or self.booked_count != self.planned_count:
            return None
        steps = self._steps_of_one(row)
        return None if steps is None else self._is_crowded(steps, row, demand, self.now + max(seconds, 1))

    def surplus_for(self, workload: Workload, rows: Rows, demand: Demand) -> Amount:
        """Return the surplus that counts for the workload if it starts now, by the rule of `closed_to`."""
        notice = self.notice(workload)
        surplus = self.surplus_during(rows, demand, workload.gap_seconds, notice)
        reserved = self._resting_on_guesses(rows, workload)
        if reserved is not None:
            with self.without_guesses(rows[reserved]):
                surplus[:, reserved] = self.surplus_during(rows[reserved], demand, workload.longest_seconds, notice)
        return surplus

    def _resting_on_guesses(self, rows: Rows, workload: Workload) -> Mask | None:
        """Return a mask of the rows with bookings; None if there are none, or no end is guessed."""
        if self.booked_count == self.planned_count:
            return None
        if not self._guessed and workload.gap_seconds == workload.longest_seconds:
            return None
        return self._reserved[rows] > 0

    def expect(self, key: Hashable, row: int, end: int, amounts: Amounts, footprint: Footprint | None = None) -> None:
        """Expect amounts that are taken now to be released at `end`, with the rest of the task's footprint."""
        self.expect_all({key: Expected(row, end, amounts, footprint)})

    def expect_all(self, tasks: Mapping[Hashable, Expected]) -> None:
        """Expect the amounts of several tasks to be released."""
        soonest = self.now + 1
        promises: dict[Hashable, Promise] = {}
        for key, (row, end, amounts, footprint, guessed_end) in tasks.items():
            latest = Promise(row, None, max(end, soonest), self._by_slot(amounts), footprint)
            self._guessed.pop(key, None)
            promises[key] = latest if guessed_end is None else self._guess(key, latest, latest, guessed_end)
        self._enter_all(promises)

    def _guess(self, key: Hashable, promise: Promise, latest: Promise | None, end: int) -> Promise:
        """Note a guessed end, and return the promise with it, corrected if it has passed."""
        self._guessed[key] = _Guess(latest, end)
        return promise._replace(end=self._overdue_end(key))

    def _overdue_end(self, key: Hashable) -> int:
        """Return the next expected end of a task: a guess is corrected, and never exceeds the latest end."""
        guess = self._guessed.get(key)
        if guess is None:
            return super()._overdue_end(key)
        end = corrected_end(guess.end, self.now)
        if guess.latest is None or guess.latest.end is None or end < guess.latest.end:
            return end
        del self._guessed[key]
        return max(guess.latest.end, self.now + 1)

    def advance(self, now: int) -> None:
        super().advance(now)
        if len(self._guessed) > 2 * len(self) + _ENDED_GUESSES:
            self._guessed = {key: guess for key, guess in self._guessed.items() if self.get(key) is not None}

    def update(
        self,
        row: int,
        ends: Mapping[UUID, tuple[int, Amounts]],
        guessed: Mapping[UUID, tuple[int, Amounts]] = _NOTHING,
        footprints: Mapping[UUID, Footprint] = _NO_FOOTPRINTS,
    ) -> None:
        """Replace the expected ends of a row by the latest ends that are known.

        `guessed`: usual ends, used instead of the latest ones, on which no booking may rely. `footprints`: by task, its
        needs beyond amounts, which are released with it.
        """
        for key in self._take_out_all([key for key, promise in self.on(row) if promise.start is None]):
            self._guessed.pop(key, None)
        if self._bookings[row]:
            self._relieved.add(row)
        if ends:
            self.expect_all({key: Expected(row, *each, footprints.get(key)) for key, each in ends.items()})
        for key, (end, amounts) in guessed.items():
            latest = self._promises.get(key)
            known = latest or Promise(row, None, end, self._by_slot(amounts), footprints.get(key))
            self._enter(key, self._guess(key, known, latest, end))

    @contextmanager
    def without_guesses(self, rows: Rows) -> Iterator[None]:
        """Assume within this context that running tasks on these rows run as long as they may."""
        guessed = self._guessed
        asked = set(rows.tolist()) if guessed else set()
        known = ((key, self._promises.get(key)) for key in guessed)
        guesses = [(key, promise) for key, promise in known if promise is not None and promise.row in asked]
        for key, _ in guesses:
            self.put_back(key, guessed[key].latest)
        try:
            yield
        finally:
            for key, promise in guesses:
                self.put_back(key, promise)

    @contextmanager
    def without_grace(self, rows: Rows) -> Iterator[None]:
        """Assume within this context that tasks on these rows stop at once, without using their stop grace."""
        graced = [
            (key, promise)
            for row in rows.tolist()
            for key, promise in self.on(row)
            if promise.start is None and promise.footprint is not None and promise.footprint.grace_seconds
        ]
        for key, promise in graced:
            assert promise.end is not None
            assert promise.footprint is not None
            end = max(promise.end - promise.footprint.grace_seconds, self.now + 1)
            self.put_back(key, promise._replace(end=end))
        try:
            yield
        finally:
            for key, promise in graced:
                self.put_back(key, promise)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo every change made within this context, including that of the time."""
        now, promises, plans = self.now, dict(self._promises), _copied(self._plans)
        relieved, dropped = set(self._relieved), list(self._dropped)
        try:
            yield
        finally:
            self.now = now
            for key in [key for key, promise in self._promises.items() if promises.get(key) != promise]:
                self._take_out(key)
            for key in promises.keys() - self._promises.keys():
                self._enter(key, promises[key])
            self._plans, self._relieved, self._dropped = plans, relieved, dropped

    @contextmanager
    def movable(self, rows: Rows, back_at: int) -> Iterator[None]:
        """Assume within this context that everything without an end on these rows is moved away by a time."""
        keys: list[Hashable] = []
        for row in rows.tolist():
            amounts = tuple((slot, amount) for slot, amount in enumerate(self._lasting(row)) if amount > 0)
            if amounts:
                keys.append(("movable", row))
                self._enter(keys[-1], Promise(row, None, max(back_at, self.now + 1), amounts))
        try:
            yield
        finally:
            for key in keys:
                self._take_out(key)

    def plan(
        self,
        pool: str,
        owner: UUID,
        part: Hashable,
        row: int,
        start: int,
        end: int | None,
        amounts: Amounts,
        footprint: Footprint | None = None,
        tasks: int = 1,
    ) -> None:
        """Promise the amounts of all `tasks` for the planned start of pending work in a pool, until it is replanned."""
        self.plan_all(pool, owner, part, [(row, tasks)], start, end, {tasks: amounts}, footprint)

    def plan_all(
        self,
        pool: str,
        owner: UUID,
        part: Hashable,
        tasks_by_row: Iterable[tuple[int, int]],
        start: int,
        end: int | None,
        amounts: Mapping[int, Amounts],
        footprint: Footprint | None,
    ) -> None:
        """Promise capacity for tasks that start together; `amounts`: those of all tasks of a row, by their number."""
        end = checked_end(start, end)
        by_slot = {tasks: self._by_slot(units) for tasks, units in amounts.items()}
        # The number of a UUID is hashed faster than the UUID.
        promises: dict[Hashable, Promise] = {
            (owner.int, part, row): Promise(row, start, end, by_slot[tasks], footprint, tasks)
            for row, tasks in tasks_by_row
        }
        self._plans.setdefault(pool, {}).setdefault(owner, []).extend(promises)
        self._enter_all(promises)

    @property
    def planned(self) -> list[Promise]:
        """The planned starts of all pending work."""
        return list(self._all_planned())

    def drop_plans(self, pools: Collection[str], keep: Collection[UUID] = ()) -> None:
        """Drop the planned starts of these pools except those of the workloads in `keep`."""
        for pool in pools if self._plans else ():
            owners = [owner for owner in self._plans.get(pool, ()) if owner not in keep]
            self.discard_plans(self.suspend_plans(owners))

    def has_no_promises_but(self, owner: UUID) -> bool:
        """Return whether all promises that are not taken yet are those for the planned start of a workload."""
        return self.booked_count == sum(len(plans.get(owner, ())) for plans in self._plans.values())

    def planned_owners(self, pools: Collection[str]) -> set[UUID]:
        """Return the workloads of these pools that have a planned start."""
        return {owner for pool in pools for owner in self._plans.get(pool, ())}

    def plans_of(self, pool: str) -> list[Suspended]:
        """Return the planned starts of a pool without suspending them."""
        plans = self._plans.get(pool, {})
        return [
            Suspended(pool, owner, key, self._promises[key])
            for owner, keys in plans.items()
            for key in keys
            if key in self._promises
        ]

    def tasks_by_row(self, pool: str, owner: UUID, start: int) -> dict[int, int]:
        """Return the number of tasks by row whose start is planned for this moment."""
        found: dict[int, int] = {}
        for key in self._plans.get(pool, {}).get(owner, ()):
            promise = self._promises.get(key)
            if promise is not None and promise.start == start:
                found[promise.row] = found.get(promise.row, 0) + promise.tasks
        return found

    def suspend_plans(self, owners: Iterable[UUID]) -> list[Suspended]:
        """Take out and return the planned starts of workloads, to be resumed or discarded."""
        suspended: list[Suspended] = []
        for owner in owners:
            for pool, plans in self._plans.items():
                taken = self._take_out_all(plans.pop(owner, ()))
                suspended += [Suspended(pool, owner, key, promise) for key, promise in taken.items()]
        return suspended

    def resume_plans(self, suspended: Iterable[Suspended]) -> None:
        """Restore suspended planned starts."""
        promises: dict[Hashable, Promise] = {}
        for pool, owner, key, promise in suspended:
            self._plans.setdefault(pool, {}).setdefault(owner, []).append(key)
            promises[key] = promise
        if promises:
            self._enter_all(promises)

    def discard_plans(self, suspended: Iterable[Suspended]) -> None:
        """Drop suspended planned starts, which may be planned anew."""
        self._dropped += [each.promise for each in suspended]

    def drop_plan(self, owner: UUID) -> None:
        """Drop the planned start of a workload that is no longer pending."""
        for plans in self._plans.values():
            for key in plans.pop(owner, ()):
                self.remove(key)

    @property
    def relieved(self) -> set[int]:
        """The rows on which less may be promised at some time than when `take_relieved` was last called."""
        if self._dropped:
            previous: dict[int, list[Promise]] = {}
            for promise in self._all_planned():
                previous.setdefault(promise.row, []).append(promise)
            soonest = self.now + 2
            for each in self._dropped:
                if each.row in self._relieved:
                    continue
                if not any(_same_plan(each, other, soonest) for other in previous.get(each.row, ())):
                    self._relieved.add(each.row)
            self._dropped = []
        return self._relieved

    def take_relieved(self) -> Rows:
        rows = np.array(sorted(self.relieved), dtype=np.intp)
        self._relieved = set()
        return rows

    @contextmanager
    def without_plan(self, owner: UUID) -> Iterator[None]:
        """Remove the planned start of a workload within this context, so that it is not in its own way."""
        suspended = [(key, self._take_out(key)) for plans in self._plans.values() for key in plans.get(owner, ())]
        try:
            yield
        finally:
            for key, promise in suspended:
                self.put_back(key, promise)

    def clear(self, row: int) -> None:
        """Remove all promises on a row that no longer holds a node."""
        for key in list(self._of_row.get(row, ())):
            self.remove(key)
            self._guessed.pop(key, None)

    def fits_instead(
        self,
        row: int,
        demand: Demand,
        seconds: int | None,
        leaving: Mapping[UUID, Amounts],
        notice: int | None = None,
    ) -> bool:
        """Return whether a task that starts now for `seconds` (None: open) fits next to a row's bookings.

        The tasks in `leaving` are gone, with their expected ends. Planned starts do not count: they are planned anew.
        """
        planned = [key for plans in self._plans.values() for keys in plans.values() for key in keys]
        out = {key: self._promises[key] for key in (*leaving, *planned) if key in self._of_row.get(row, ())}
        for key in out:
            self._take_out(key)
        rows = np.array([row], dtype=np.intp)
        free = self._free(rows, demand) - self.surplus_during(rows, demand, seconds, notice)
        for key, promise in out.items():
            self.put_back(key, promise)
        freed = [[sum(amounts.get(name, 0) for amounts in leaving.values())] for name in demand.names]
        return bool((demand.amounts <= free + freed).all())

    def _all_planned(self) -> Iterator[Promise]:
        for plans in self._plans.values():
            for keys in plans.values():
                yield from (self._promises[key] for key in keys if key in self._promises)


def _same_plan(one: Promise, other: Promise, soonest: int) -> bool:
    """Return whether two planned starts on a row promise the same.

    A start that awaits an overdue end moves by a second every second, so that starts before `soonest` are equal.
    """
    return max(one.start or 0, soonest) == max(other.start or 0, soonest) and one[3:] == other[3:]


def _copied(plans: Mapping[str, Mapping[UUID, Iterable[Hashable]]]) -> dict[str, dict[UUID, list[Hashable]]]:
    return {pool: {owner: list(keys) for owner, keys in owners.items()} for pool, owners in plans.items()}
