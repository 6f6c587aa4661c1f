"""Decisions on bookings beside many others of the same node: the cost of one depends on its own window alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from mooring.controllers.scheduling.reservations import Reservations
from mooring.mirror.calendar import Calendar
from mooring.mirror.schedulers import work_of
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.scheduling import Cluster, Scheduler
from tests.scheduling.builders import NOW, node

S = TimeslotStatus
SERIES = 100


class Leader:
    """The leader's calendar of three nodes, and what it decides; its updates come true at once."""

    def __init__(self) -> None:
        self.cluster = Cluster([node(name).cpu(8).node for name in ("a", "b", "c")])
        self.calendar = Calendar(self.cluster)
        scheduler = Scheduler(cluster=self.cluster, compiled=False)
        self.reservations = Reservations(
            self.cluster, self.calendar, lambda slot: scheduler.rows_for(work_of(slot, "process"))
        )
        self.number = 0

    def book(self, occurrences: int, hour: int, cores: int = 1) -> list[Timeslot]:
        """Ask for a series, one a day, and take in all answers."""
        for day in range(occurrences):
            self.number += 1
            starts_at = NOW + timedelta(days=2 + day, hours=hour)
            self.calendar.put(
                Timeslot(
                    id=UUID(int=self.number),
                    name="lecture",
                    kind=TimeslotKind.BOOKING,
                    pool="default",
                    status=S.REQUESTED,
                    starts_at=starts_at,
                    ends_at=starts_at + timedelta(hours=2),
                    request={"cpu": 1000 * cores},
                )
            )
        asked = {slot.id for slot in self.calendar.with_status(S.REQUESTED)}
        while self.reservations.unsettled(NOW):
            updates = self.reservations.decide(NOW)
            updated = [
                replace(each.slot, status=each.status, placements=each.placements or {}, version=each.slot.version + 1)
                for each in updates
            ]
            self.reservations.settle(updates, updated)
        return [self.calendar.slots[id] for id in sorted(asked) if id in self.calendar.slots]


def cost_of_a_series(days: int) -> int:
    """The steps of the timeline that are written for one more series beside several of so many days."""
    leader = Leader()
    for hour in (0, 3, 6, 9):
        leader.book(days, hour)
    before = leader.cluster.timeline.steps_written
    booked = leader.book(SERIES, hour=7)
    assert [slot.status for slot in booked] == [S.CONFIRMED] * SERIES
    assert len({frozenset(slot.placements) for slot in booked}) == 1
    return leader.cluster.timeline.steps_written - before


def test_a_series_costs_the_same_beside_many_other_bookings_of_its_node():
    assert cost_of_a_series(days=1024) <= 2 * cost_of_a_series(days=128)


def test_a_full_node_refuses_no_less_when_it_has_many_bookings():
    leader = Leader()
    for _ in range(3):
        leader.book(300, hour=0, cores=8)
    assert leader.book(20, hour=1, cores=1) == []
    assert len(leader.book(20, hour=3, cores=8)) == 20
