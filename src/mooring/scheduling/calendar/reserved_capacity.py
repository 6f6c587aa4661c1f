"""The room of timeslots: to everybody else it is promised on the timeline, to the work inside it is what is left.

While work of a timeslot is placed the promise is lifted; what is placed leaves so much less of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

import numpy as np

from mooring.model.admission import NOTHING, Awaits
from mooring.model.reasons import Reason
from mooring.model.slots import Amounts, describe_amounts
from mooring.model.workloads import Workload
from mooring.scheduling.arrays import Amount, Demand, Mask, Rows
from mooring.scheduling.timeline import Timeline, time_of

_BY = "timeslot"


@dataclass(slots=True)
class _Room:
    begins: int
    ends: int
    is_open: bool
    left: dict[UUID, dict[str, int]] = field(default_factory=dict)
    """By node, of every slot that was booked there."""
    seen: tuple[int, Rows, dict[str, Amount]] | None = None
    """The same as columns of the cluster's rows, with the membership that these are of; None: to be made anew."""


class Members(Protocol):
    """Which nodes a cluster has, and what is promised on them."""

    timeline: Timeline
    membership: int

    @property
    def capacity(self) -> int: ...

    def row_of(self, node_id: UUID) -> int | None: ...


class Timeslots:
    """The room of timeslots on the nodes of a cluster, by their ids."""

    def __init__(self, cluster: Members) -> None:
        self._cluster = cluster
        self._rooms: dict[UUID, _Room] = {}

    def __contains__(self, timeslot_id: UUID) -> bool:
        return timeslot_id in self._rooms

    def tell(
        self, timeslot_id: UUID, begins: int, ends: int, left: Mapping[UUID, Amounts], *, is_open: bool = False
    ) -> None:
        """What is left of a timeslot on each of its nodes, beyond what its own work has taken there.

        It is promised from when it begins to take work until it ends, in seconds; its work may be placed if `is_open`.
        """
        self.forget(timeslot_id)
        room = _Room(begins, ends, is_open, {node_id: dict(amounts) for node_id, amounts in left.items()})
        self._rooms[timeslot_id] = room
        self._promise(timeslot_id, room)

    def forget(self, timeslot_id: UUID) -> None:
        """It keeps no room any more; one that is not known is no error."""
        room = self._rooms.pop(timeslot_id, None)
        if room is not None:
            self._lift(timeslot_id, room)

    def left(self, timeslot_id: UUID) -> Mapping[UUID, Amounts]:
        """What is left of it by node."""
        room = self._rooms.get(timeslot_id)
        return {} if room is None else room.left

    def take(self, timeslot_id: UUID, node_id: UUID, amounts: Amounts, sign: int = 1) -> None:
        """Work of its own took so much of its room on a node, or (-1) gave it back."""
        room = self._rooms[timeslot_id]
        room.seen, left = None, room.left[node_id]
        for slot, amount in amounts.items():
            left[slot] = left.get(slot, 0) - sign * amount

    @contextmanager
    def lifted(self, timeslot_id: UUID | None) -> Iterator[None]:
        """As it is for the work of a timeslot: its room is kept from others only."""
        room = None if timeslot_id is None else self._rooms.get(timeslot_id)
        if timeslot_id is None or room is None:
            yield
            return
        self._lift(timeslot_id, room)
        try:
            yield
        finally:
            self._promise(timeslot_id, room)

    def why_not_yet(self, workload: Workload, now: int) -> tuple[Reason, Awaits] | None:
        """Why work cannot be placed inside its timeslot now, whatever is left of it, and what it waits for."""
        assert workload.booking is not None
        room = self._rooms.get(workload.booking)
        if room is None:
            return Reason("before-timeslot", "its timeslot is not confirmed", _BY), NOTHING
        if room.ends <= now:
            return Reason("timeslot-over", "its timeslot is over", _BY, "never"), NOTHING
        if room.is_open and room.begins <= now:
            return None
        begins = time_of(room.begins)
        said = begins.isoformat(timespec="seconds")
        reason = Reason("before-timeslot", f"its timeslot takes work from {said} on", _BY, details={"not_before": said})
        return reason, Awaits(until=begins) if room.begins > now else NOTHING

    def fits(self, timeslot_id: UUID, demand: Demand, placed: Amount) -> Mask:
        """The rows where its room takes a demand once more, beside so many that were `placed` there just now."""
        fitting = np.zeros(self._cluster.capacity, dtype=np.bool_)
        room = self._rooms.get(timeslot_id)
        if room is not None:
            rows, left = self._columns(room)
            fitting[rows] = True
            for name, amount in zip(demand.names, demand.amounts[:, 0].tolist(), strict=True):
                fitting[rows] &= (1 + placed[rows]) * amount <= left.get(name, 0)
        return fitting

    def until_its_end(self, workload: Workload, now: int) -> Workload:
        """The work as if it stayed until its timeslot ends: if it leaves sooner, its room is the timeslot's again."""
        assert workload.booking is not None
        return replace(workload, time_limit_seconds=self._rooms[workload.booking].ends - now, stop_grace_seconds=0)

    def full(self, workload: Workload) -> Reason | None:
        """Why its timeslot takes no task of it more; None: there is room for one, as far as it is the timeslot's."""
        assert workload.booking is not None
        left = self.left(workload.booking)
        if any(all(amount <= each.get(name, 0) for name, amount in workload.request.items()) for each in left.values()):
            return None
        total: dict[str, int] = {}
        for each in left.values():
            for slot, amount in each.items():
                total[slot] = total.get(slot, 0) + amount
        rest = describe_amounts({slot: amount for slot, amount in total.items() if amount > 0})
        nodes = f"on {len(left):,} nodes" if len(left) != 1 else "on its node"
        message = (
            f"its timeslot has {rest or 'nothing'} left {nodes}; one task asks for {describe_amounts(workload.request)}"
        )
        return Reason("timeslot-full", message, _BY, "release", {"left": total, "asked": dict(workload.request)})

    def _columns(self, room: _Room) -> tuple[Rows, dict[str, Amount]]:
        membership = self._cluster.membership
        if room.seen is None or room.seen[0] != membership:
            there = [(row, each) for id, each in room.left.items() if (row := self._cluster.row_of(id)) is not None]
            names = {name for _, each in there for name in each}
            left = {name: np.array([each.get(name, 0) for _, each in there], dtype=np.int64) for name in names}
            room.seen = membership, np.array([row for row, _ in there], dtype=np.intp), left
        return room.seen[1:]

    def _promise(self, timeslot_id: UUID, room: _Room) -> None:
        timeline = self._cluster.timeline
        for node_id, left in room.left.items():
            row = self._cluster.row_of(node_id)
            amounts = {slot: amount for slot, amount in left.items() if amount > 0}
            if row is not None and amounts and room.ends > timeline.now:
                timeline.add((timeslot_id, row), row, room.begins, room.ends, amounts)

    def _lift(self, timeslot_id: UUID, room: _Room) -> None:
        for node_id in room.left:
            row = self._cluster.row_of(node_id)
            if row is not None:
                self._cluster.timeline.remove((timeslot_id, row))
