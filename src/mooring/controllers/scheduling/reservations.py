"""Decisions on timeslots: confirm or refuse requests, and relocate timeslots that lost their capacity.

Nothing is stored here. Decisions are returned as updates, and count in the calendar from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.mirror.calendar import Calendar
from mooring.model.calendar.timeslots import (
    OVER,
    Timeslot,
    TimeslotKind,
    TimeslotStatus,
)
from mooring.model.lifecycle import NodeStatus
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts
from mooring.scheduling.calendar.bookings import Booked, book
from mooring.scheduling.calendar.capacity_queries import Alternatives
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.scheduling.cluster.arrays import Rows
from mooring.scheduling.cluster_state import Cluster
from mooring.store.reservations.timeslots import TimeslotUpdate

RowsOf = Callable[[Timeslot], Rows]
"""Returns the rows of the nodes that may run the work of a timeslot."""
_AT_ONCE = 256
"""Maximum number of requests answered, or timeslots relocated, per iteration, so that placements are not delayed."""
_AGAIN = timedelta(seconds=30)
"""Interval after which timeslots at risk are retried even if no node or timeslot changed."""
_HORIZON = timedelta(days=30)
"""Range of the search for a later start."""
_WAITED_FOR_SECONDS = 60
"""A timeslot stays on a node if running work ends within this time after its beginning."""
_BY = "timeslots"
S = TimeslotStatus


class Reservations:
    def __init__(self, cluster: Cluster, calendar: Calendar, rows_of: RowsOf) -> None:
        self._cluster = cluster
        self._calendar = calendar
        self._rows_of = rows_of
        self._tried: tuple[int, int] | None = None
        """Revisions of nodes and timeslots at the last retry of timeslots at risk."""
        self._again_at: datetime | None = None
        self._tries = 0

    def unsettled(self, at: datetime) -> bool:
        """Return whether there is anything to decide."""
        return self._calendar.unsettled or (bool(self._calendar.with_status(S.AT_RISK)) and self._may_have_capacity(at))

    def decide(self, at: datetime) -> list[TimeslotUpdate]:
        """Relocate timeslots that lost their capacity, then answer requests, oldest first."""
        self._cluster.timeline.advance(seconds_of(at))
        updates = self._rearrange(at)
        for slot in self._calendar.with_status(S.REQUESTED)[:_AT_ONCE]:
            update = self._answer(slot, at)
            if update.placements is not None:
                fits = slot.kind is not TimeslotKind.MAINTENANCE
                self._calendar.put(replace(slot, status=update.status, placements=update.placements), fits=fits)
            updates.append(update)
        return updates

    def settle(self, updates: Iterable[TimeslotUpdate], updated: Iterable[Timeslot]) -> None:
        """Apply the outcome of updates to the calendar. Updates that lost a race to another change are undone."""
        applied = {slot.id: slot for slot in updated}
        for update in updates:
            if update.slot.id not in applied:
                self._calendar.put(update.slot)
                self._calendar.nodes_to_check |= update.slot.placements.keys()
        for slot in applied.values():
            if slot.status in OVER:
                self._calendar.drop(slot.id)
            else:
                self._calendar.put(slot)

    def _answer(self, slot: Timeslot, at: datetime) -> TimeslotUpdate:
        begins, ends = _window(slot, at)
        if ends <= begins:
            return TimeslotUpdate(slot, S.REFUSED, Reason("timeslot-over", "its window is already over", _BY, "never"))
        old = None if slot.replaces is None else self._calendar.slots.get(slot.replaces)
        if slot.kind is TimeslotKind.MAINTENANCE:
            return _upkeep(slot, old)
        waiting = [other for other in self._calendar.with_status(S.AT_RISK) if _takes_precedence(other, slot)]
        if waiting:
            message = (
                f"capacity was lost: {_counted(len(waiting))} at that time had it promised and wait for other capacity"
            )
            return TimeslotUpdate(slot, S.REFUSED, Reason("bookings-at-risk", message, _BY, "release"))
        rows = self._rows_of(slot)
        if old is None:
            answer = self._book(slot, rows, begins, ends)
        else:
            with self._cluster.timeslots.lifted(old.id):
                answer = self._instead(slot, old, rows, begins, ends)
        if isinstance(answer, Alternatives):
            return TimeslotUpdate(slot, S.REFUSED, _no_capacity(slot, answer, begins))
        placements = {self._cluster.node(row).id: tasks for row, tasks in answer.placements}
        return TimeslotUpdate(slot, S.CONFIRMED, placements=placements)

    def _instead(self, slot: Timeslot, old: Timeslot, rows: Rows, begins: int, ends: int) -> Booked | Alternatives:
        """Return capacity for a changed timeslot, on its current nodes if possible; running work never moves."""
        demand = self._cluster.demand(_request(slot))
        same = [
            (row, tasks) for node, tasks in old.placements.items() if (row := self._cluster.row_of(node)) is not None
        ]
        whole = slot.count == old.count == sum(tasks for _, tasks in same)
        fitting = whole and bool(np.isin([row for row, _ in same], rows).all())
        if fitting and all(self._has_capacity(slot, old, row, tasks, begins, ends) for row, tasks in same):
            return Booked(tuple(same))
        if self._calendar.occupied(old.id):
            here = np.array([row for row, _ in same], dtype=np.intp)
            return self._cluster.timeline.alternatives(here, demand, slot.count, begins, ends, horizon=_horizon(ends))
        return self._book(slot, rows, begins, ends)

    def _book(self, slot: Timeslot, rows: Rows, begins: int, ends: int) -> Booked | Alternatives:
        cluster, movable_by = self._cluster, self._movable_by(slot.pool)
        demand = cluster.demand(_request(slot))
        horizon = _horizon(ends)
        return book(cluster, slot.id, rows, demand, slot.count, begins, ends, horizon=horizon, movable_by=movable_by)

    def _has_capacity(self, slot: Timeslot, old: Timeslot, row: int, tasks: int, begins: int, ends: int) -> bool:
        """Return whether a row has capacity for a changed timeslot. Until the old one ends, its work counts as used."""
        whole = {name: tasks * amount for name, amount in slot.request.items()}
        taken = self._calendar.occupied(old.id).get(self._cluster.node(row).id, {})
        left = {name: max(0, amount - taken.get(name, 0)) for name, amount in whole.items()}
        change = max(begins, min(ends, seconds_of(old.ends_at))) if taken else begins
        rows = np.array([row], dtype=np.intp)
        with self._as_promised(slot, old, rows):
            for amounts, start, end in ((left, begins, change), (whole, change, ends)):
                demand = self._cluster.demand(tuple(sorted(amounts.items())))
                if start < end and not self._cluster.timeline.fits(rows, demand, start, end)[0]:
                    return False
        return True

    def _as_promised(self, slot: Timeslot, old: Timeslot, rows: Rows) -> AbstractContextManager[None]:
        """Let work without an end leave for a changed timeslot as for the old one, or after the usual notice."""
        timeline = self._cluster.timeline
        times = [time for time in (self._movable_by(slot.pool),) if time is not None]
        if slot.request == old.request and slot.pool in timeline.open_ended_notice:
            times.append(seconds_of(old.eligible_at))
        return timeline.movable(rows, min(times)) if times else nullcontext()

    def _movable_by(self, pool: str) -> int | None:
        """Return the time by which work without an end can leave for a new booking; None if it never leaves."""
        timeline = self._cluster.timeline
        return timeline.now + timeline.open_ended_notice[pool] if pool in timeline.displacing else None

    def _rearrange(self, at: datetime) -> list[TimeslotUpdate]:
        calendar = self._calendar
        displaced = cache(lambda node_id: {slot.id for slot in self._lost_capacity(node_id, at)})
        homeless = {slot.id for slot in self._to_try_again(at)}
        for node_id in sorted(calendar.nodes_to_check):
            if len(homeless) >= 2 * _AT_ONCE:
                break
            calendar.nodes_to_check.discard(node_id)
            homeless |= displaced(node_id)
        gone = {
            id: [node for node in calendar.slots[id].placements if id in displaced(node)] for id in sorted(homeless)
        }
        updates = [self._elsewhere(calendar.slots[id], nodes, at) for id, nodes in gone.items()]
        return [update for update in updates if update is not None]

    def _to_try_again(self, at: datetime) -> list[Timeslot]:
        """Return the next batch of timeslots at risk, if there may be capacity for them."""
        at_risk = self._calendar.with_status(S.AT_RISK)
        if not at_risk or not self._may_have_capacity(at):
            return []
        first = self._tries * _AT_ONCE % len(at_risk)
        self._tries += 1
        self._tried, self._again_at = self._changes(), at + _AGAIN
        return at_risk[first : first + _AT_ONCE]

    def _may_have_capacity(self, at: datetime) -> bool:
        return self._tried != self._changes() or self._again_at is None or self._again_at <= at

    def _changes(self) -> tuple[int, int]:
        return self._cluster.static_changes.revision, self._calendar.given_back

    def _elsewhere(self, slot: Timeslot, gone: Collection[UUID], at: datetime) -> TimeslotUpdate | None:
        """Return the move of a timeslot that lost nodes, or None if it stays at risk."""
        retained = {node_id: tasks for node_id, tasks in slot.placements.items() if node_id not in gone}
        missing = slot.count - sum(retained.values())
        found: dict[UUID, int] | None = {}
        if missing:
            found = self._more(slot, missing, gone, at)
        if found is None:
            if slot.status is S.AT_RISK:
                return None
            lost = ", ".join(sorted(map(self._name_of, gone)))
            message = f"{missing} of {slot.count} tasks have lost their capacity on {lost}, and there is no other"
            reason = Reason("capacity-lost", message, _BY, "release", {"missing": missing, "count": slot.count})
            self._calendar.put(replace(slot, status=S.AT_RISK))
            return TimeslotUpdate(slot, S.AT_RISK, reason)
        placements = {node_id: retained.get(node_id, 0) + found.get(node_id, 0) for node_id in {**retained, **found}}
        in_force = slot.status is S.ACTIVE or (slot.status is S.AT_RISK and slot.eligible_at <= at)
        update = TimeslotUpdate(slot, S.ACTIVE if in_force else S.CONFIRMED, placements=placements)
        self._calendar.put(replace(slot, status=update.status, placements=placements))
        return update

    def _more(self, slot: Timeslot, missing: int, gone: Collection[UUID], at: datetime) -> dict[UUID, int] | None:
        """Return placements for the missing tasks of a timeslot next to its other tasks; None without capacity."""
        begins, ends = _window(slot, at)
        if ends <= begins:
            return None
        cluster, timeline = self._cluster, self._cluster.timeline
        rows = self._rows_of(slot)
        away = [row for row in map(cluster.row_of, gone) if row is not None]
        rows = rows[~np.isin(rows, away)]
        left = cluster.timeslots.left(slot.id)
        own: list[tuple[object, int]] = []
        with cluster.timeslots.lifted(slot.id):
            for node_id, amounts in left.items():
                row = cluster.row_of(node_id)
                if row is not None and node_id not in gone:
                    timeline.add((slot.id, row), row, begins, ends, amounts)
                    own.append((slot.id, row))
            key = (slot.id, "more")
            demand = cluster.demand(_request(slot))
            # The capacity is already promised: work without an end leaves for it, however short the notice.
            movable_by = begins if slot.pool in timeline.open_ended_notice else None
            answer = book(cluster, key, rows, demand, missing, begins, ends, horizon=ends, movable_by=movable_by)
            if isinstance(answer, Booked):
                own += [(key, row) for row, _ in answer.placements]
            for each in own:
                timeline.remove(each)
        if isinstance(answer, Alternatives):
            return None
        return {cluster.node(row).id: tasks for row, tasks in answer.placements}

    def _lost_capacity(self, node_id: UUID, at: datetime) -> list[Timeslot]:
        """Return the timeslots that lost their capacity on a node. A timeslot whose work occupies the node stays."""
        here = [slot for slot in self._calendar.on(node_id) if slot.ends_at > at]
        booked = [slot for slot in here if slot.kind is not TimeslotKind.MAINTENANCE]
        movable = [slot for slot in booked if not self._calendar.occupied(slot.id).get(node_id)]
        row = self._cluster.row_of(node_id)
        if row is None or not self._is_usable(row):
            return movable
        upkeep = [slot for slot in here if slot.kind is TimeslotKind.MAINTENANCE]
        shut = {slot.id for slot in booked if any(_overlap(slot, each) for each in upkeep)}
        crowded = self._crowded([slot for slot in booked if slot.id not in shut], node_id, row, at)
        return [slot for slot in movable if slot.id in shut | crowded]

    def _crowded(self, slots: Sequence[Timeslot], node_id: UUID, row: int, at: datetime) -> set[Hashable]:
        """Return the timeslots without capacity next to older ones, or next to work that still runs when they begin."""
        now, left = seconds_of(at), self._cluster.timeslots.left
        # Work without an end is ignored: it leaves before a confirmed timeslot begins.
        free = dict(zip(self._cluster.slot_names, self._cluster.allocatable[:, row].tolist(), strict=False))
        crowded = {window.id for window in _too_many([], [_on_node(slot, node_id, at) for slot in slots], free)}
        # The part of a timeslot that its own work occupies counts as running work.
        windows = [_Window(slot.id, *_window(slot, at), left(slot.id).get(node_id, {})) for slot in slots]
        stay = [window for window in windows if window.id not in crowded]
        begun = [window for window in stay if window.begins <= now]
        ahead = [window for window in stay if window.begins > now]
        return crowded | {window.id for window in _too_many([*self._running(row), *begun], ahead, free)}

    def _running(self, row: int) -> list[_Window]:
        """Return the windows of running work with an end on a row. Work about to end, or overdue, is left out."""
        timeline, names = self._cluster.timeline, self._cluster.slot_names
        found: list[_Window] = []
        for key, promise in timeline.on(row):
            if promise.start is None and promise.end is not None:
                amounts = {names[number]: amount for number, amount in promise.amounts}
                found.append(_Window(key, timeline.now, promise.end - _WAITED_FOR_SECONDS, amounts))
        return [window for window in found if window.begins < window.ends]

    def _is_usable(self, row: int) -> bool:
        """Return whether timeslots stay on a node. A suspect node counts, because its silence may be short."""
        node = self._cluster.node(row)
        return node.ready or (node.status is NodeStatus.SUSPECT and node.schedulable)

    def _name_of(self, node_id: UUID) -> str:
        row = self._cluster.row_of(node_id)
        return "a node that was removed" if row is None else self._cluster.node(row).name


class _Window(NamedTuple):
    """The amounts that a timeslot or running work has on one node, and their time."""

    id: Hashable
    begins: int
    ends: int
    amounts: Amounts


def _on_node(slot: Timeslot, node_id: UUID, at: datetime) -> _Window:
    amounts = {name: slot.placements[node_id] * amount for name, amount in slot.request.items()}
    return _Window(slot.id, *_window(slot, at), amounts)


def _too_many(retained: Sequence[_Window], windows: Sequence[_Window], free: Mapping[str, int]) -> list[_Window]:
    """Return the windows that do not fit in addition to `retained` and the windows accepted before them."""
    if _fit([*retained, *windows], free):
        return []
    retained = list(retained)
    displaced: list[_Window] = []
    for window in windows:
        overlapping = [other for other in retained if other.begins < window.ends and window.begins < other.ends]
        if _fit([*overlapping, window], free):
            retained.append(window)
        else:
            displaced.append(window)
    return displaced


def _fit(windows: Iterable[_Window], free: Mapping[str, int]) -> bool:
    """Return whether the amounts never exceed `free`. A window that ends frees its amounts at that second."""
    changes = sorted(
        change
        for window in windows
        for name, amount in window.amounts.items()
        for change in ((window.begins, amount, name), (window.ends, -amount, name))
    )
    promised: dict[str, int] = {}
    for at, (time, amount, name) in enumerate(changes):
        promised[name] = promised.get(name, 0) + amount
        last = at + 1 == len(changes) or changes[at + 1][0] != time
        if last and any(amount > free.get(name, 0) for name, amount in promised.items()):
            return False
    return True


def _window(slot: Timeslot, at: datetime) -> tuple[int, int]:
    """Return the remaining window of a timeslot with its lead, in seconds."""
    return max(seconds_of(slot.eligible_at), seconds_of(at)), seconds_of(slot.ends_at)


def _overlap(slot: Timeslot, upkeep: Timeslot) -> bool:
    return slot.eligible_at < upkeep.ends_at and upkeep.starts_at < slot.ends_at


def _upkeep(slot: Timeslot, old: Timeslot | None) -> TimeslotUpdate:
    """Return the move of a changed maintenance window: the same nodes, whatever is promised on them."""
    if old is None:
        return TimeslotUpdate(
            slot, S.REFUSED, Reason("timeslot-over", "the booking that it changes is over", _BY, "never")
        )
    return TimeslotUpdate(slot, S.CONFIRMED, placements=old.placements)


def _takes_precedence(at_risk: Timeslot, asked: Timeslot) -> bool:
    """Return whether a timeslot at risk takes precedence over a request: same pool, overlapping time."""
    same = at_risk.pool == asked.pool and at_risk.id != asked.replaces
    return same and at_risk.eligible_at < asked.ends_at and asked.eligible_at < at_risk.ends_at


def _request(slot: Timeslot) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(slot.request.items()))


def _horizon(ends: int) -> int:
    return ends + int(_HORIZON.total_seconds())


def _no_capacity(slot: Timeslot, found: Alternatives, begins: int) -> Reason:
    """Return the reason of a refusal with its alternatives: the nearest start, or fewer tasks at the requested time."""
    options: list[str] = []
    start: datetime | None = None
    if found.start is not None:
        start = slot.starts_at + timedelta(seconds=found.start - begins)
        options.append(f"from {start.isoformat(timespec='seconds' if start.second else 'minutes')}")
    if found.tasks:
        options.append(f"with {found.tasks} instead of {slot.count}")
    fits = f"it fits {', or '.join(options)}" if options else "nor for fewer tasks or at a later time"
    details = {"start": None if start is None else start.isoformat(), "count": found.tasks}
    return Reason(
        "no-room", f"there is no capacity for it at that time; {fits}", _BY, "release", {"alternatives": details}
    )


def _counted(number: int) -> str:
    return "1 booking" if number == 1 else f"{number} bookings"
