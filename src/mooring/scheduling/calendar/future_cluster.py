"""The cluster at a later moment: tasks have ended by their expected ends, and work has begun by its planned starts.

The future is a state of the columns themselves, so that the ordinary filters and the ordinary node selection answer
whether work will fit then in every respect. Moving between moments costs as much as the changes between them, and all
of it is undone afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

from mooring.scheduling.calendar.promises import Promise
from mooring.scheduling.calendar.step_functions import NEVER
from mooring.scheduling.calendar.withheld import Withheld, withheld_on
from mooring.scheduling.cluster.footprints import Footprint
from mooring.scheduling.cluster_state import Cluster

_NO_ENDS: Mapping[Hashable, int] = MappingProxyType({})
_ENDS, _STARTS = 0, 1
"""In the same second, ends come before starts."""


class _Event(NamedTuple):
    time: int
    kind: int
    number: int
    key: Hashable
    promise: Promise


class Future:
    """A cluster that can be moved to any later moment, and back."""

    def __init__(
        self,
        cluster: Cluster,
        rows: Iterable[int],
        *,
        prompt: bool = False,
        ends: Mapping[Hashable, int] = _NO_ENDS,
        unpromised: Iterable[tuple[Hashable, Promise]] = (),
    ) -> None:
        """With `prompt`, running tasks stop at once, without using their stop grace.

        `ends`: by task, ends sooner than promised. `unpromised`: ends of running tasks that the timeline has as open.
        """
        self._cluster = cluster
        self._now = cluster.timeline.now
        self._done = 0
        self._uncounted: set[Hashable] = set()
        """Tasks that the cluster's placed tasks do not include with the constraints of their footprint."""
        self._withheld: list[Withheld] = []
        promises = [(key, promise) for row in rows for key, promise in cluster.timeline.on(row)]
        promises += unpromised
        moments: set[int] = set()
        events: list[_Event] = []
        for number, (key, promise) in enumerate(promises):
            if promise.end is not None:
                end = self._end_of(promise, prompt)
                if promise.start is None and key in ends:
                    end = min(end, max(ends[key], self._now + 1))
                moments.add(end)
            if promise.start is None and promise.end is not None:
                events.append(_Event(end, _ENDS, number, key, promise))
            elif promise.is_planned and promise.start is not None:
                events.append(_Event(promise.start, _STARTS, number, key, promise))
                if promise.end is not None:
                    events.append(_Event(promise.end, _ENDS, number, key, promise))
        self._events = sorted(events, key=lambda event: event[:3])
        self.moments = sorted(moment for moment in moments if moment > self._now)
        """The times at which capacity is released: running tasks, planned work or bookings end."""
        self._planned_rows = {promise.row for _, promise in promises if promise.is_planned}

    def _end_of(self, promise: Promise, prompt: bool) -> int:
        assert promise.end is not None
        if not prompt or promise.start is not None or promise.footprint is None:
            return promise.end
        return max(promise.end - promise.footprint.grace_seconds, self._now + 1)

    def next_moment(self, after: int) -> int | None:
        """Return the next moment at which capacity is released."""
        at = bisect_right(self.moments, after)
        return self.moments[at] if at < len(self.moments) else None

    def move_to(self, time: int, seconds: int | None) -> int:
        """Show the cluster at a later time to work that runs for `seconds`, and return the number of changes."""
        self._release_withheld()
        target = bisect_right(self._events, time, key=lambda event: event.time)
        changes = abs(target - self._done)
        # Set the time before promises return to the timeline, whose agenda holds only what is still ahead.
        self._cluster.timeline.now = time
        while self._done < target:
            self._apply(self._events[self._done], 1)
            self._done += 1
        while self._done > target:
            self._done -= 1
            self._apply(self._events[self._done], -1)
        self._withhold(time, NEVER if seconds is None else time + max(seconds, 1))
        return changes

    def _apply(self, event: _Event, sign: int) -> None:
        if event.promise.start is None:
            self._end(event, sign)
        else:
            assert event.promise.footprint is not None
            starts = sign if event.kind == _STARTS else -sign
            self._cluster.move_footprint(event.promise.row, event.promise.footprint, event.promise.tasks, starts)

    def _end(self, event: _Event, sign: int) -> None:
        """End a running task (1), or let it run again (-1)."""
        cluster, (row, _, _, amounts, footprint, *_) = self._cluster, event.promise
        for slot, amount in amounts:
            cluster.taken[slot, row] -= sign * amount
        if sign > 0:
            cluster.timeline.remove(event.key)
            if footprint is not None and not self._is_counted(row, footprint):
                self._uncounted.add(event.key)
        else:
            cluster.timeline.put_back(event.key, event.promise)
        if footprint is None:
            cluster.tasks[row] -= sign
        else:
            shown = footprint._replace(constraints=None) if event.key in self._uncounted else footprint
            cluster.move_footprint(row, shown, 1, -sign)
        cluster.changes.note((row,))

    def _is_counted(self, row: int, footprint: Footprint) -> bool:
        """Return whether the task is among the placed tasks that affinity and spread terms count."""
        known = footprint.constraints
        return known is not None and self._cluster.placed_tasks.has(row, known, leaving=footprint.leaving)

    def _withhold(self, moment: int, before: int) -> None:
        """Withhold the needs of starts planned between the moment and the end of the work in question."""
        for row in self._planned_rows:
            self._withheld += withheld_on(self._cluster, self._cluster.timeline, row, moment, before)
        for _, row, tasks, licences, ports, devices in self._withheld:
            self._cluster.withhold(row, tasks, licences, ports, devices, 1)

    def _release_withheld(self) -> None:
        for _, row, tasks, licences, ports, devices in self._withheld:
            self._cluster.withhold(row, tasks, licences, ports, devices, -1)
        self._withheld = []

    def restore(self) -> None:
        """Restore the present state of the cluster."""
        self._release_withheld()
        self._cluster.timeline.now = self._now
        while self._done:
            self._done -= 1
            self._apply(self._events[self._done], -1)


@contextmanager
def future_of(cluster: Cluster, rows: Iterable[int], *, prompt: bool = False) -> Iterator[Future]:
    """Yield the future of some rows; all changes to the cluster are undone on exit and leave no journal entries."""
    with cluster.without_journal(), cluster.plans.lifted():
        future = Future(cluster, rows, prompt=prompt)
        try:
            yield future
        finally:
            future.restore()
