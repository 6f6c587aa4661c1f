"""Deciding on timeslots: who gets room in the time ahead, and where those go whose room is gone.

Nothing here is stored: what was decided comes back as moves, and counts in the calendar from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

import numpy as np

from mooring.mirror.calendar import Calendar
from mooring.model.lifecycle import NodeStatus
from mooring.model.reasons import Reason
from mooring.model.slots import Amounts
from mooring.model.timeslots import OVER, Timeslot, TimeslotKind, TimeslotStatus
from mooring.scheduling.arrays import Rows
from mooring.scheduling.bookings import Booked, book
from mooring.scheduling.columns import Cluster
from mooring.scheduling.timeline import Alternatives, seconds_of
from mooring.store.timeslots import Move

RowsOf = Callable[[Timeslot], Rows]
"""The nodes that may take the work of a timeslot."""
_AT_ONCE = 256
"""Answers, or timeslots to find other room for, in one go: what is placed does not wait for all of many."""
_AGAIN = timedelta(seconds=30)
"""After this time those at risk are tried again, whether or not a node or another timeslot changed."""
_HORIZON = timedelta(days=30)
"""So far ahead a later start is looked for."""
_WAITED_FOR_SECONDS = 60
"""A timeslot stays where work is to end so shortly after its beginning."""
_BY = "timeslots"
S = TimeslotStatus


class Reservations:
    def __init__(self, cluster: Cluster, calendar: Calendar, rows_of: RowsOf) -> None:
        self._cluster = cluster
        self._calendar = calendar
        self._rows_of = rows_of
        self._tried: tuple[int, int] | None = None
        """What nodes and timeslots were when those at risk were tried last."""
        self._again_at: datetime | None = None
        self._tries = 0

    def unsettled(self, at: datetime) -> bool:
        """There is something to decide."""
        return self._calendar.unsettled or (bool(self._calendar.having(S.AT_RISK)) and self._may_have_room(at))

    def decide(self, at: datetime) -> list[Move]:
        """Find other room for what has lost its own, and answer those who asked, the oldest first."""
        self._cluster.timeline.advance(seconds_of(at))
        moves = self._rearrange(at)
        for slot in self._calendar.having(S.REQUESTED)[:_AT_ONCE]:
            move = self._answer(slot, at)
            if move.places is not None:
                self._calendar.put(replace(slot, status=move.status, places=move.places))
            moves.append(move)
        return moves

    def settle(self, moves: Iterable[Move], moved: Iterable[Timeslot]) -> None:
        """What became of moves: those that somebody else was quicker with did not come true."""
        came_true = {slot.id: slot for slot in moved}
        for move in moves:
            if move.slot.id not in came_true:
                self._calendar.put(move.slot)
                self._calendar.stirred |= move.slot.places.keys()
        for slot in came_true.values():
            if slot.status in OVER:
                self._calendar.drop(slot.id)
            else:
                self._calendar.put(slot)

    def _answer(self, slot: Timeslot, at: datetime) -> Move:
        begins, ends = _window(slot, at)
        if ends <= begins:
            return Move(slot, S.REFUSED, Reason("timeslot-over", "its window is over already", _BY, "never"))
        old = None if slot.replaces is None else self._calendar.slots.get(slot.replaces)
        if slot.kind is TimeslotKind.MAINTENANCE:
            return _upkeep(slot, old)
        waiting = [other for other in self._calendar.having(S.AT_RISK) if _stands_before(other, slot)]
        if waiting:
            message = f"room was lost: {_counted(len(waiting))} at that time had it promised, and wait for other room"
            return Move(slot, S.REFUSED, Reason("bookings-at-risk", message, _BY, "release"))
        rows = self._rows_of(slot)
        demand = self._cluster.demand(_request(slot))
        if old is None:
            answer = book(self._cluster, slot.id, rows, demand, slot.count, begins, ends, horizon=_horizon(ends))
        else:
            with self._cluster.timeslots.lifted(old.id):
                answer = self._instead(slot, old, rows, begins, ends)
        if isinstance(answer, Alternatives):
            return Move(slot, S.REFUSED, _no_room(slot, answer, begins))
        places = {self._cluster.node(row).id: tasks for row, tasks in answer.places}
        return Move(slot, S.CONFIRMED, places=places)

    def _instead(self, slot: Timeslot, old: Timeslot, rows: Rows, begins: int, ends: int) -> Booked | Alternatives:
        """Room for the change of a timeslot, where it was if possible; what runs in it already stays where it is."""
        demand = self._cluster.demand(_request(slot))
        same = [(row, tasks) for node, tasks in old.places.items() if (row := self._cluster.row_of(node)) is not None]
        whole = slot.count == old.count == sum(tasks for _, tasks in same)
        fitting = whole and bool(np.isin([row for row, _ in same], rows).all())
        if fitting and all(self._keeps(slot, old, row, tasks, begins, ends) for row, tasks in same):
            return Booked(tuple(same))
        if self._calendar.occupied(old.id):
            here = np.array([row for row, _ in same], dtype=np.intp)
            return self._cluster.timeline.alternatives(here, demand, slot.count, begins, ends, horizon=_horizon(ends))
        return book(self._cluster, slot.id, rows, demand, slot.count, begins, ends, horizon=_horizon(ends))

    def _keeps(self, slot: Timeslot, old: Timeslot, row: int, tasks: int, begins: int, ends: int) -> bool:
        """Whether a row has the room of a changed timeslot. Until the old one ends, its work is counted as taken."""
        whole = {name: tasks * amount for name, amount in slot.request.items()}
        taken = self._calendar.occupied(old.id).get(self._cluster.node(row).id, {})
        left = {name: max(0, amount - taken.get(name, 0)) for name, amount in whole.items()}
        change = max(begins, min(ends, seconds_of(old.ends_at))) if taken else begins
        rows = np.array([row], dtype=np.intp)
        for amounts, start, end in ((left, begins, change), (whole, change, ends)):
            demand = self._cluster.demand(tuple(sorted(amounts.items())))
            if start < end and not self._cluster.timeline.fits(rows, demand, start, end)[0]:
                return False
        return True

    def _rearrange(self, at: datetime) -> list[Move]:
        calendar = self._calendar
        displaced = cache(lambda node_id: {slot.id for slot in self._displaced(node_id, at)})
        homeless = {slot.id for slot in self._to_try_again(at)}
        for node_id in sorted(calendar.stirred):
            if len(homeless) >= 2 * _AT_ONCE:
                break
            calendar.stirred.discard(node_id)
            homeless |= displaced(node_id)
        gone = {id: [node for node in calendar.slots[id].places if id in displaced(node)] for id in sorted(homeless)}
        moves = [self._elsewhere(calendar.slots[id], nodes, at) for id, nodes in gone.items()]
        return [move for move in moves if move is not None]

    def _to_try_again(self, at: datetime) -> list[Timeslot]:
        """Those at risk, so many at a time, when there may be room for them."""
        at_risk = self._calendar.having(S.AT_RISK)
        if not at_risk or not self._may_have_room(at):
            return []
        first = self._tries * _AT_ONCE % len(at_risk)
        self._tries += 1
        self._tried, self._again_at = self._changes(), at + _AGAIN
        return at_risk[first : first + _AT_ONCE]

    def _may_have_room(self, at: datetime) -> bool:
        return self._tried != self._changes() or self._again_at is None or self._again_at <= at

    def _changes(self) -> tuple[int, int]:
        return self._cluster.static_changes.revision, self._calendar.given_back

    def _elsewhere(self, slot: Timeslot, gone: Collection[UUID], at: datetime) -> Move | None:
        """Other room for what a timeslot has lost; None: it stays at risk."""
        kept = {node_id: tasks for node_id, tasks in slot.places.items() if node_id not in gone}
        missing = slot.count - sum(kept.values())
        found: dict[UUID, int] | None = {}
        if missing:
            found = self._more(slot, missing, gone, at)
        if found is None:
            if slot.status is S.AT_RISK:
                return None
            lost = ", ".join(sorted(map(self._name_of, gone)))
            message = f"{missing} of {slot.count} tasks have lost their room on {lost}, and there is no other"
            reason = Reason("capacity-lost", message, _BY, "release", {"missing": missing, "count": slot.count})
            self._calendar.put(replace(slot, status=S.AT_RISK))
            return Move(slot, S.AT_RISK, reason)
        places = {node_id: kept.get(node_id, 0) + found.get(node_id, 0) for node_id in {**kept, **found}}
        in_force = slot.status is S.ACTIVE or (slot.status is S.AT_RISK and slot.eligible_at <= at)
        move = Move(slot, S.ACTIVE if in_force else S.CONFIRMED, places=places)
        self._calendar.put(replace(slot, status=move.status, places=places))
        return move

    def _more(self, slot: Timeslot, missing: int, gone: Collection[UUID], at: datetime) -> dict[UUID, int] | None:
        """Room for so many of its tasks beside those that keep theirs."""
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
            answer = book(cluster, key, rows, cluster.demand(_request(slot)), missing, begins, ends, horizon=ends)
            if isinstance(answer, Booked):
                own += [(key, row) for row, _ in answer.places]
            for each in own:
                timeline.remove(each)
        if isinstance(answer, Alternatives):
            return None
        return {cluster.node(row).id: tasks for row, tasks in answer.places}

    def _displaced(self, node_id: UUID, at: datetime) -> list[Timeslot]:
        """The timeslots that have no room on a node any more; where its own work is, a timeslot stays."""
        here = [slot for slot in self._calendar.on(node_id) if slot.ends_at > at]
        booked = [slot for slot in here if slot.kind is not TimeslotKind.MAINTENANCE]
        movable = [slot for slot in booked if not self._calendar.occupied(slot.id).get(node_id)]
        row = self._cluster.row_of(node_id)
        if row is None or not self._stays(row):
            return movable
        upkeep = [slot for slot in here if slot.kind is TimeslotKind.MAINTENANCE]
        shut = {slot.id for slot in booked if any(_overlap(slot, each) for each in upkeep)}
        crowded = self._crowded([slot for slot in booked if slot.id not in shut], node_id, row, at)
        return [slot for slot in movable if slot.id in shut | crowded]

    def _crowded(self, slots: Sequence[Timeslot], node_id: UUID, row: int, at: datetime) -> set[Hashable]:
        """Those that have no room beside older ones, or beside running work when they begin."""
        free, now, left = self._never_free(row), seconds_of(at), self._cluster.timeslots.left
        crowded = {window.id for window in _too_many([], [_on_node(slot, node_id, at) for slot in slots], free)}
        # What its own work has taken of a timeslot is among what runs.
        windows = [_Window(slot.id, *_window(slot, at), left(slot.id).get(node_id, {})) for slot in slots]
        stay = [window for window in windows if window.id not in crowded]
        begun = [window for window in stay if window.begins <= now]
        ahead = [window for window in stay if window.begins > now]
        return crowded | {window.id for window in _too_many([*self._running(row), *begun], ahead, free)}

    def _running(self, row: int) -> list[_Window]:
        """What is taken of a row, until its end; what is about to end, or does so late, is waited for."""
        timeline, names = self._cluster.timeline, self._cluster.slot_names
        found: list[_Window] = []
        for key, promise in timeline.on(row):
            if promise.start is None and promise.end is not None:
                amounts = {names[place]: amount for place, amount in promise.amounts}
                found.append(_Window(key, timeline.now, promise.end - _WAITED_FOR_SECONDS, amounts))
        return [window for window in found if window.begins < window.ends]

    def _stays(self, row: int) -> bool:
        """One that was silent for a moment may be there again in the next."""
        node = self._cluster.node(row)
        return node.ready or (node.status is NodeStatus.SUSPECT and node.schedulable)

    def _never_free(self, row: int) -> dict[str, int]:
        """What a row has for timeslots: all but what is taken without an end."""
        free = self._cluster.allocatable[:, row] - self._cluster.taken[:, row]
        for _, promise in self._cluster.timeline.on(row):
            for place, amount in promise.amounts if promise.start is None else ():
                free[place] += amount
        return dict(zip(self._cluster.slot_names, free.tolist(), strict=False))

    def _name_of(self, node_id: UUID) -> str:
        row = self._cluster.row_of(node_id)
        return "a node that is gone" if row is None else self._cluster.node(row).name


class _Window(NamedTuple):
    """What a timeslot, or running work, has of one node, and when."""

    id: Hashable
    begins: int
    ends: int
    amounts: Amounts


def _on_node(slot: Timeslot, node_id: UUID, at: datetime) -> _Window:
    amounts = {name: slot.places[node_id] * amount for name, amount in slot.request.items()}
    return _Window(slot.id, *_window(slot, at), amounts)


def _too_many(kept: Sequence[_Window], windows: Sequence[_Window], free: Mapping[str, int]) -> list[_Window]:
    """Those that have no room beside what is kept in any case and the ones before them."""
    if _fit([*kept, *windows], free):
        return []
    kept = list(kept)
    displaced: list[_Window] = []
    for window in windows:
        beside = [other for other in kept if other.begins < window.ends and window.begins < other.ends]
        if _fit([*beside, window], free):
            kept.append(window)
        else:
            displaced.append(window)
    return displaced


def _fit(windows: Iterable[_Window], free: Mapping[str, int]) -> bool:
    """Whether at no time more is promised than there is. What ends makes room for what begins then."""
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
    """When its room is kept, in seconds from now on."""
    return max(seconds_of(slot.eligible_at), seconds_of(at)), seconds_of(slot.ends_at)


def _overlap(slot: Timeslot, upkeep: Timeslot) -> bool:
    return slot.eligible_at < upkeep.ends_at and upkeep.starts_at < slot.ends_at


def _upkeep(slot: Timeslot, old: Timeslot | None) -> Move:
    """What an operator takes at another time are the same nodes, whatever is promised of them."""
    if old is None:
        return Move(slot, S.REFUSED, Reason("timeslot-over", "what it is a change of is over", _BY, "never"))
    return Move(slot, S.CONFIRMED, places=old.places)


def _stands_before(at_risk: Timeslot, asked: Timeslot) -> bool:
    """Whether one that lost its room is to find other room before another gets any."""
    same = at_risk.pool == asked.pool and at_risk.id != asked.replaces
    return same and at_risk.eligible_at < asked.ends_at and asked.eligible_at < at_risk.ends_at


def _request(slot: Timeslot) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(slot.request.items()))


def _horizon(ends: int) -> int:
    return ends + int(_HORIZON.total_seconds())


def _no_room(slot: Timeslot, found: Alternatives, begins: int) -> Reason:
    """Why it was refused, and what would fit: the nearest start, or how many at the time that was asked for."""
    options: list[str] = []
    start: datetime | None = None
    if found.start is not None:
        start = slot.starts_at + timedelta(seconds=found.start - begins)
        options.append(f"from {start.isoformat(timespec='seconds' if start.second else 'minutes')}")
    if found.tasks:
        options.append(f"with {found.tasks} instead of {slot.count}")
    fits = f"it fits {', or '.join(options)}" if options else "nor is there any for fewer, or later"
    details = {"start": None if start is None else start.isoformat(), "count": found.tasks}
    return Reason("no-room", f"there is no room for it at that time; {fits}", _BY, "release", {"alternatives": details})


def _counted(number: int) -> str:
    return "1 timeslot" if number == 1 else f"{number} timeslots"
