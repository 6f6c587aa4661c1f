"""The calendar tells the cluster what timeslots have left, and no more often than that changes."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from mooring.mirror.calendar import Calendar
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.scheduling import Cluster
from tests.scheduling.builders import NOW, id_of, node

S = TimeslotStatus


def timeslot(number: int, status: TimeslotStatus = S.CONFIRMED) -> Timeslot:
    starts_at = NOW + timedelta(days=number)
    return Timeslot(
        id=UUID(int=number),
        name="lecture",
        kind=TimeslotKind.BOOKING,
        pool="default",
        status=status,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(hours=2),
        request={"cpu": 1000},
        placements={id_of("a"): 2},
    )


@pytest.fixture
def cluster() -> Cluster:
    return Cluster([node("a").cpu(8).node])


@pytest.fixture
def calendar(cluster: Cluster) -> Calendar:
    calendar = Calendar(cluster)
    calendar.put(timeslot(1, S.ACTIVE))
    for number in range(2, 100):
        calendar.put(timeslot(number))
    calendar.changed()
    return calendar


def test_a_node_that_is_read_again_changes_only_timeslots_with_work(cluster: Cluster, calendar: Calendar):
    calendar.set_occupied(UUID(int=1), {id_of("a"): {"cpu": 1000}})
    cluster.upsert(node("a").cpu(8).used(cpu=1).tasks(1).node)
    calendar.note_nodes([id_of("a")])
    assert calendar.changed() == {UUID(int=1)}
    assert cluster.timeslots.left(UUID(int=1)) == {id_of("a"): {"cpu": 1000}}
    assert cluster.timeslots.left(UUID(int=2)) == {id_of("a"): {"cpu": 2000}}


def test_the_timeslots_of_a_node_that_left_and_came_back_are_promised_again(cluster: Cluster, calendar: Calendar):
    promised = sorted(promise for _, promise in cluster.timeline.on(0))
    assert len(promised) == 99
    cluster.remove(id_of("a"))
    calendar.note_nodes([id_of("a")])
    assert len(cluster.timeline) == 0
    cluster.upsert(node("a").cpu(8).node)
    calendar.note_nodes([id_of("a")])
    row = cluster.row_of(id_of("a"))
    assert row is not None
    assert sorted(promise._replace(row=0) for _, promise in cluster.timeline.on(row)) == promised
