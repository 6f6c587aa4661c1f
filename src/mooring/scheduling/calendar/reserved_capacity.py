"""The capacity of timeslots: promised on the timeline to keep others out, available to the timeslot's own work.

While work of a timeslot is placed, its promise is lifted; placements reduce the remaining capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

import numpy as np

from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts, describe_amounts
from mooring.model.tenancy.admission import NOTHING, Awaits
from mooring.model.workloads.workload import Workload
from mooring.scheduling.calendar.seconds import time_of
from mooring.scheduling.calendar.timeline import Timeline
from mooring.scheduling.cluster.arrays import (
    Amount,
    Demand,
    Mask,
    Rows,
)

_BY = "timeslot"


@dataclass(slots=True)
class _Reserved:
    begins: int
    ends: int
    is_open: bool
    firm: bool = False
    left: dict[UUID, dict[str, int]] = field(default_factory=dict)
    """By node, the remaining amount of every slot booked there."""
    seen: tuple[int, Rows, dict[str, Amount]] | None = None
    """The same as columns over the cluster's rows, with the membership they were built for; None: to be rebuilt."""


class Members(Protocol):
    """The nodes of a cluster and the promises on them."""

    timeline: Timeline
    membership: int

    @property
    def capacity(self) -> int: ...

    def row_of(self, node_id: UUID) -> int | None: ...


class Timeslots:
    """The capacity of timeslots on the nodes of a cluster, by timeslot id."""

    def __init__(self, cluster: Members) -> None:
        self._cluster = cluster
        self._by_timeslot: dict[UUID, _Reserved] = {}

    def __contains__(self, timeslot_id: UUID) -> bool:
        return timeslot_id in self._by_timeslot

    def update(
        self,
        timeslot_id: UUID,
        begins: int,
        ends: int,
        left: Mapping[UUID, Amounts],
        *,
        is_open: bool = False,
        firm: bool = False,
    ) -> None:
        """Set the remaining capacity of a timeslot on each of its nodes, without the amounts taken by its own work.

        It is promised from `begins` to `ends`, in seconds. Its work may be placed only if `is_open`. `firm`: running
        work is not moved for it.
        """
        self.forget(timeslot_id)
        reserved = _Reserved(begins, ends, is_open, firm, {node_id: dict(amounts) for node_id, amounts in left.items()})
        self._by_timeslot[timeslot_id] = reserved
        self._promise(timeslot_id, reserved)

    def forget(self, timeslot_id: UUID) -> None:
        """Release the capacity of a timeslot; an unknown one is not an error."""
        reserved = self._by_timeslot.pop(timeslot_id, None)
        if reserved is not None:
            self._lift(timeslot_id, reserved)

    def left(self, timeslot_id: UUID) -> Mapping[UUID, Amounts]:
        """Return the remaining capacity by node."""
        reserved = self._by_timeslot.get(timeslot_id)
        return {} if reserved is None else reserved.left

    def take(self, timeslot_id: UUID, node_id: UUID, amounts: Amounts, sign: int = 1) -> None:
        """Take capacity of a node for the timeslot's own work, or (-1) give it back."""
        reserved = self._by_timeslot[timeslot_id]
        reserved.seen, left = None, reserved.left[node_id]
        for slot, amount in amounts.items():
            left[slot] = left.get(slot, 0) - sign * amount

    @contextmanager
    def lifted(self, timeslot_id: UUID | None) -> Iterator[None]:
        """Lift the promise of a timeslot within this context, in which only its own work is placed."""
        reserved = None if timeslot_id is None else self._by_timeslot.get(timeslot_id)
        if timeslot_id is None or reserved is None:
            yield
            return
        self._lift(timeslot_id, reserved)
        try:
            yield
        finally:
            self._promise(timeslot_id, reserved)

    def why_not_yet(self, workload: Workload, now: int) -> tuple[Reason, Awaits] | None:
        """Return why work cannot be placed in its timeslot now regardless of capacity, and the changes it awaits."""
        assert workload.booking is not None
        reserved = self._by_timeslot.get(workload.booking)
        if reserved is None:
            return Reason("before-timeslot", "its booking is not confirmed", _BY), NOTHING
        if reserved.ends <= now:
            return Reason("timeslot-over", "its booking is over", _BY, "never"), NOTHING
        if reserved.is_open and reserved.begins <= now:
            return None
        begins = time_of(reserved.begins)
        said = begins.isoformat(timespec="seconds")
        reason = Reason("before-timeslot", f"its booking takes work from {said} on", _BY, details={"not_before": said})
        return reason, Awaits(until=begins) if reserved.begins > now else NOTHING

    def fits(self, timeslot_id: UUID, demand: Demand, placed: Amount) -> Mask:
        """Return the rows on which the timeslot has capacity for one more demand, after those `placed` just now."""
        fitting = np.zeros(self._cluster.capacity, dtype=np.bool_)
        reserved = self._by_timeslot.get(timeslot_id)
        if reserved is not None:
            rows, left = self._columns(reserved)
            fitting[rows] = True
            for name, amount in zip(demand.names, demand.amounts[:, 0].tolist(), strict=True):
                fitting[rows] &= (1 + placed[rows]) * amount <= left.get(name, 0)
        return fitting

    def until_its_end(self, workload: Workload, now: int) -> Workload:
        """Return the work as if it ran until its timeslot ends: capacity freed earlier goes back to the timeslot."""
        assert workload.booking is not None
        return replace(
            workload,
            time_limit_seconds=self._by_timeslot[workload.booking].ends - now,
            stop_grace_seconds=0,
            predicted_seconds=None,
        )

    def full(self, workload: Workload) -> Reason | None:
        """Return why the timeslot's remaining capacity fits none of the workload's tasks; None if it fits one."""
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
            f"its booking has {rest or 'nothing'} left {nodes}; one task requests {describe_amounts(workload.request)}"
        )
        return Reason("timeslot-full", message, _BY, "release", {"left": total, "asked": dict(workload.request)})

    def _columns(self, reserved: _Reserved) -> tuple[Rows, dict[str, Amount]]:
        membership = self._cluster.membership
        if reserved.seen is None or reserved.seen[0] != membership:
            there = [(row, each) for id, each in reserved.left.items() if (row := self._cluster.row_of(id)) is not None]
            names = {name for _, each in there for name in each}
            left = {name: np.array([each.get(name, 0) for _, each in there], dtype=np.int64) for name in names}
            reserved.seen = membership, np.array([row for row, _ in there], dtype=np.intp), left
        return reserved.seen[1:]

    def _promise(self, timeslot_id: UUID, reserved: _Reserved) -> None:
        timeline = self._cluster.timeline
        for node_id, left in reserved.left.items():
            row = self._cluster.row_of(node_id)
            amounts = {slot: amount for slot, amount in left.items() if amount > 0}
            if row is not None and amounts and reserved.ends > timeline.now:
                timeline.add((timeslot_id, row), row, reserved.begins, reserved.ends, amounts, firm=reserved.firm)

    def _lift(self, timeslot_id: UUID, reserved: _Reserved) -> None:
        for node_id in reserved.left:
            row = self._cluster.row_of(node_id)
            if row is not None:
                self._cluster.timeline.remove((timeslot_id, row))
