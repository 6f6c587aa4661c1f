"""Timeslots under a leader: answered, kept, moved when their room is gone, and moved along by time."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from mooring import clock
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.quotas import Scope, Tenant
from mooring.model.timeslots import TimeslotKind, TimeslotStatus
from mooring.store import timeslots
from mooring.store.agenda import ENDS_SOON
from mooring.store.ids import new_id
from tests.controllers.port import NINE, Port, StandingClock
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite
S = TimeslotStatus


@pytest.fixture
async def port(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    standing = StandingClock()
    monkeypatch.setattr(clock, "source", standing)
    port = Port(harbour, standing)
    await harbour.node("a", cpu=8)
    yield port
    assert await differences(port.mirror, harbour.database) == []
    assert await harbour.findings() == []
    port.scheduling.close()


async def test_a_request_that_fits_is_confirmed_with_its_place(port: Port):
    booked = await port.book(count=2)
    assert await port.status(booked) == S.CONFIRMED
    assert await port.places(booked) == {"a": 2}


async def test_what_does_not_fit_is_refused_with_what_would(port: Port):
    await port.book("first", cpu=6)
    second = await port.book("second", cpu=1, count=4)
    assert await port.status(second) == S.REFUSED
    row = await port.row(second)
    assert row.reason["code"] == "no-room"
    # The first has its room from its lead to its end; the second needs its own lead before its start.
    later = NINE + timedelta(minutes=120 + 35)
    assert row.reason["details"]["alternatives"] == {"start": later.isoformat(), "count": 2}
    assert row.reason["message"].endswith("it fits from 2027-03-01T11:35+00:00, or with 2 instead of 4")


async def test_an_alternative_names_the_second_where_the_minute_would_be_too_early(port: Port):
    await port.book("first", cpu=8, minutes=60.5)
    row = await port.row(await port.book("second", cpu=8))
    told = row.reason["details"]["alternatives"]["start"]
    assert told.endswith(":30+00:00")
    assert row.reason["message"].endswith(f"it fits from {told}")


async def test_what_no_node_may_take_is_refused(port: Port):
    booked = await port.book(architecture="riscv64")
    assert await port.status(booked) == S.REFUSED
    assert (await port.row(booked)).reason["message"].endswith("nor is there any for fewer, or later")


async def test_one_booking_may_begin_when_another_ends(port: Port):
    first = await port.book("first", cpu=8, lead=0, start=60, minutes=60)
    second = await port.book("second", cpu=8, lead=0, start=120, minutes=60)
    assert (await port.status(first), await port.status(second)) == (S.CONFIRMED, S.CONFIRMED)


async def test_others_run_in_the_gap_if_they_end_before_a_booking_begins(port: Port):
    await port.book(cpu=8, start=60, lead=30)
    short = await port.submit("short", cpu=8, limit=29 * 60)
    await port.turn()
    assert await port.node_of(short) == ["a"]
    long = await port.submit("long", cpu=1, limit=31 * 60)
    await port.turn()
    assert await port.node_of(long) == [None]


async def test_what_waits_for_a_booking_is_tried_when_that_is_cancelled(port: Port):
    booked = await port.book(cpu=8)
    waits = await port.submit("endless", cpu=8)
    await port.turn()
    assert await port.why(waits) == "booked"
    await port.cancel(booked)
    await port.turn()
    assert await port.node_of(waits) == ["a"]


async def test_its_work_waits_for_the_lead_and_then_has_the_room(port: Port):
    booked = await port.book(cpu=4, count=2, start=60, lead=35)
    early = await port.submit("early", booked, cpu=4)
    await port.turn()
    assert await port.why(early) == "before-timeslot"
    await port.turn(minutes=24, seconds=59)
    assert (await port.status(booked), await port.node_of(early)) == (S.CONFIRMED, [None])
    assert port.scheduling.wait_seconds(30) == pytest.approx(1)
    assert port.timeslots.alarm.wait_seconds(30) == pytest.approx(1)
    await port.turn(seconds=1)
    assert (await port.status(booked), await port.node_of(early)) == (S.ACTIVE, ["a"])
    others = await port.submit("others", cpu=5)
    guest = await port.submit("guest", booked, cpu=4)
    late = await port.submit("late", booked, cpu=1)
    await port.turn()
    assert await port.node_of(others) == [None]
    assert await port.node_of(guest) == ["a"]
    assert await port.why(late) == "timeslot-full"
    # Its room is its own again when its work has left.
    await port.run(guest)
    await port.stopped(guest)
    await port.turn()
    assert await port.node_of(late) == ["a"]
    assert await port.node_of(others) == [None]


async def test_a_booking_ends_with_notice_and_its_work_with_it(port: Port):
    booked = await port.book(cpu=8, start=60, minutes=60, lead=0)
    next_one = await port.book("next", cpu=8, start=120, minutes=60, lead=0)
    running, waiting = await port.submit("running", booked, cpu=8), await port.submit("waiting", booked, cpu=8)
    for_next = await port.submit("for-next", next_one, cpu=8)
    await port.turn(minutes=60)
    await port.run(running)
    await port.turn(minutes=54)
    assert ENDS_SOON not in [event.kind for event in await port.harbour.feed(booked)]
    await port.turn(minutes=1)
    await port.turn(minutes=1)
    assert [event.kind for event in await port.harbour.feed(booked)].count(ENDS_SOON) == 1
    await port.turn(minutes=4)
    assert (await port.status(booked), await port.status(next_one)) == (S.ENDED, S.ACTIVE)
    assert await port.harbour.statuses(running) == ["TERMINATING"]
    ended = await port.harbour.workload(waiting)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "timeslot-over")
    await port.stopped(running)
    await port.turn()
    gone = await port.harbour.workload(running)
    assert (gone.status, gone.reason["message"]) == ("CANCELLED", "Its timeslot is over")
    assert await port.node_of(for_next) == ["a"]


async def test_a_lab_that_could_not_start_in_time_has_missed_it(port: Port):
    lab = await port.book("lab", kind=TimeslotKind.LAB, cpu=4, start=10, lead=5, grace_seconds=300)
    work = await port.submit("work", lab, cpu=5)
    await port.turn(minutes=15)
    assert await port.status(lab) == S.ACTIVE
    await port.turn(milliseconds=1)
    assert (await port.status(lab), await port.code(lab)) == (S.EXPIRED, "timeslot-missed")
    ended = await port.harbour.workload(work)
    assert (ended.status, ended.reason["code"]) == ("EXPIRED", "timeslot-missed")


async def test_a_lab_whose_work_has_ended_is_given_back(port: Port):
    lab = await port.book("lab", kind=TimeslotKind.LAB, cpu=4, start=10, lead=10)
    work = await port.submit("work", lab, cpu=4)
    far = await port.book("far", kind=TimeslotKind.LAB, cpu=4, start=600)
    unwanted = await port.submit("unwanted", far, cpu=4)
    await port.turn()
    await port.run(work)
    await port.stopped(work)
    await port.harbour.stop(unwanted)
    await port.turn()
    assert (await port.status(lab), await port.status(far)) == (S.RELEASED, S.CANCELLED)


async def test_a_booking_that_nobody_uses_is_released(port: Port):
    unused = await port.book("unused", start=10, lead=0, release_after_seconds=600)
    used = await port.book("used", start=10, lead=0, release_after_seconds=600)
    guest = await port.submit("guest", used, cpu=1)
    await port.turn(minutes=10)
    await port.run(guest)
    await port.turn(minutes=9)
    assert (await port.status(unused), await port.status(used)) == (S.ACTIVE, S.ACTIVE)
    await port.turn(minutes=1)
    assert (await port.status(unused), await port.status(used)) == (S.RELEASED, S.ACTIVE)
    await port.stopped(guest)
    await port.turn(minutes=9)
    assert await port.status(used) == S.ACTIVE
    await port.turn(minutes=1)
    assert (await port.status(used), await port.code(used)) == (S.RELEASED, "unused")


async def test_a_booking_whose_node_is_drained_goes_elsewhere(port: Port):
    booked = await port.book(count=2)
    b = await port.harbour.node("b", cpu=16)
    (a,) = (await port.slot(booked)).places
    await port.harbour.drain(a)
    await port.turn()
    assert (await port.status(booked), await port.places(booked)) == (S.CONFIRMED, {"b": 2})
    assert [event.kind for event in await port.harbour.feed(booked)] == ["REQUESTED", "CONFIRMED", "moved"]
    await port.harbour.drain(a, False)
    await port.harbour.drain(b)
    await port.turn()
    assert await port.places(booked) == {"a": 2}


async def test_without_other_room_a_booking_is_at_risk_and_none_is_confirmed_before_it(port: Port):
    booked = await port.book(cpu=8)
    (a,) = (await port.slot(booked)).places
    await port.harbour.drain(a)
    await port.turn()
    assert (await port.status(booked), await port.code(booked)) == (S.AT_RISK, "capacity-lost")
    await port.harbour.node("b", cpu=4)
    same_time, later = await port.book("same-time", cpu=1), await port.book("later", cpu=1, start=600)
    assert await port.code(same_time) == "bookings-at-risk"
    assert await port.status(later) == S.CONFIRMED
    await port.harbour.drain(a, False)
    await port.turn()
    assert (await port.status(booked), await port.places(booked)) == (S.CONFIRMED, {"a": 1})


async def test_a_node_that_shrank_keeps_the_oldest_bookings(port: Port):
    first, second = await port.book("first", cpu=4), await port.book("second", cpu=4)
    (a,) = (await port.slot(first)).places
    await port.harbour.connect(a, {"cpu": 6000, "memory": 16 << 30}, port.clock.at)
    await port.turn()
    assert (await port.status(first), await port.status(second)) == (S.CONFIRMED, S.AT_RISK)


async def test_maintenance_moves_bookings_and_keeps_work_away(port: Port):
    b = await port.harbour.node("b", cpu=16)
    booked = await port.book(cpu=8)
    assert await port.places(booked) == {"a": 1}
    (a,) = (await port.slot(booked)).places
    upkeep = await port.maintain(a, start=60, minutes=60)
    await port.turn()
    assert await port.places(booked) == {"b": 1}
    endless = await port.submit("endless", cpu=8)
    await port.turn()
    assert await port.node_of(endless) == ["b"]
    short, long = await port.submit("short", cpu=8, limit=600), await port.submit("long", cpu=1, limit=3601)
    await port.turn()
    assert await port.node_of(short) == ["a"]
    assert await port.node_of(long) == [None]
    await port.turn(minutes=60)
    assert await port.status(upkeep) == S.ACTIVE
    await port.turn(minutes=60)
    assert await port.status(upkeep) == S.ENDED
    assert b not in (await port.slot(upkeep)).places


async def test_a_change_that_fits_takes_the_place_of_what_it_changes(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10, minutes=60)
    guest = await port.submit("guest", booked, cpu=8)
    await port.turn()
    await port.run(guest)
    old = await port.slot(booked)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, places={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harbour.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.turn()
    assert (await port.status(booked), await port.status(longer.id)) == (S.CANCELLED, S.ACTIVE)
    assert await port.places(longer.id) == {"a": 1}
    await port.turn(minutes=80)
    assert await port.harbour.statuses(guest) == ["RUNNING"]


async def test_a_change_that_does_not_fit_leaves_everything_as_it_was(port: Port):
    booked = await port.book(cpu=8, start=10, lead=0, minutes=60)
    await port.book("next", cpu=8, start=70, lead=0, minutes=60)
    old = await port.slot(booked)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, places={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harbour.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.turn()
    assert (await port.status(booked), await port.status(longer.id)) == (S.CONFIRMED, S.REFUSED)
    assert await port.status(await port.book("beside", cpu=1, start=10, lead=0)) == S.REFUSED


async def test_a_timeslot_in_force_is_charged_to_its_booker(port: Port):
    booked = await port.book(cpu=3, count=2, start=10, lead=0)
    user = Tenant(Scope.USER, str(port.harbour.principal.user_id))
    guest = await port.submit("guest", booked, cpu=3)
    await port.turn(minutes=10)
    await port.run(guest)
    await port.turn()
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 6000
    await port.turn(minutes=60)
    await port.stopped(guest)
    await port.turn()
    assert port.mirror.tenancy.usage.used_by(user).get("cpu", 0) == 0


async def test_what_was_decided_by_nobody_is_decided_by_the_next_leader(port: Port):
    booked = await port.ask()
    standby = Mirror(port.harbour.database)
    await standby.load()
    assert standby.calendar.undecided
    await port.turn()
    await standby.follow()
    assert await standby.agrees()
    assert standby.cluster.timeslots.left(booked) == port.mirror.cluster.timeslots.left(booked)


async def test_a_booking_leaves_a_drained_node_when_its_work_has_left(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8, type="batch")
    await port.turn()
    await port.run(guest)
    await port.harbour.node("b", cpu=8)
    (task,) = await port.harbour.tasks(guest)
    assert task.status == TaskStatus.RUNNING
    await port.harbour.drain(task.node_id)
    await port.turn()
    # While its work is there its room is there.
    assert await port.places(booked) == {"a": 1}
    await port.stopped(guest)
    await port.turn()
    assert await port.places(booked) == {"b": 1}


async def test_work_inside_a_timeslot_is_not_displaced(port: Port):
    await port.harbour.set_options(preemption={"mode": "requeue"})
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8, priority=1)
    await port.turn()
    await port.run(guest)
    urgent = await port.submit("urgent", cpu=8, priority=90)
    await port.turn()
    assert await port.harbour.statuses(guest) == ["RUNNING"]
    assert await port.node_of(urgent) == [None]


async def test_a_booking_at_risk_uses_the_room_that_it_has(port: Port):
    b = await port.harbour.node("b", cpu=4)
    booked = await port.book(cpu=4, count=3, start=10, lead=5)
    assert await port.places(booked) == {"a": 2, "b": 1}
    await port.harbour.drain(b)
    guests = [await port.submit(f"guest-{number}", booked, cpu=4) for number in range(3)]
    await port.turn(minutes=5)
    assert await port.status(booked) == S.AT_RISK
    assert [await port.node_of(guest) for guest in guests] == [["a"], ["a"], [None]]


async def test_a_pool_whose_rules_fail_refuses_bookings_and_stops_nothing(port: Port):
    await port.harbour.set_options(profile="no-such-profile")
    assert await port.status(await port.book()) == S.REFUSED


async def test_a_booking_that_lost_two_nodes_is_at_risk_until_it_has_room_for_both(port: Port):
    b = await port.harbour.node("b", cpu=8)
    booked = await port.book(cpu=8, count=2)
    a = next(node_id for node_id in (await port.slot(booked)).places if node_id != b)
    await port.harbour.drain(a)
    await port.harbour.drain(b)
    await port.turn()
    assert await port.status(booked) == S.AT_RISK
    await port.harbour.node("c", cpu=8)
    # One of its nodes is told of again, and there is room for its share.
    await port.harbour.connect(b, {"cpu": 9000, "memory": 16 << 30}, port.clock.at)
    await port.turn()
    assert await port.status(booked) == S.AT_RISK
    await port.harbour.node("d", cpu=8)
    await port.turn()
    assert (await port.status(booked), await port.places(booked)) == (S.CONFIRMED, {"c": 1, "d": 1})


async def test_a_booking_leaves_a_node_that_was_silent_for_too_long(port: Port):
    booked = await port.book()
    (a,) = (await port.slot(booked)).places
    await port.harbour.node("b", cpu=8)
    await port.harbour.fall_silent(a, port.clock.at + timedelta(seconds=1), NodeStatus.SUSPECT)
    await port.turn()
    # It may be heard of in the next moment.
    assert await port.places(booked) == {"a": 1}
    await port.harbour.fall_silent(a, port.clock.at + timedelta(seconds=1), NodeStatus.LOST)
    await port.turn()
    assert await port.places(booked) == {"b": 1}


async def test_a_booking_leaves_a_node_that_is_lost_with_its_work(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8)
    await port.turn()
    await port.run(guest)
    await port.harbour.node("b", cpu=8)
    (task,) = await port.harbour.tasks(guest)
    await port.harbour.fall_silent(task.node_id, port.clock.at + timedelta(seconds=1))
    await port.harbour.move(task, TaskStatus.LOST, freed=False)
    await port.turn()
    assert await port.places(booked) == {"b": 1}


async def test_maintenance_that_is_changed_stays_on_its_nodes(port: Port):
    b = await port.harbour.node("b", cpu=8)
    upkeep = await port.maintain(b, start=60, minutes=60)
    await port.harbour.drain(b)
    await port.turn()
    old = await port.slot(upkeep)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, places={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harbour.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.turn()
    assert (await port.status(upkeep), await port.status(longer.id)) == (S.CANCELLED, S.CONFIRMED)
    assert await port.places(longer.id) == {"b": 1}


async def test_what_its_work_leaves_early_stays_the_bookings(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10, minutes=120)
    short = await port.submit("short", booked, cpu=8, limit=600)
    await port.turn()
    await port.run(short)
    await port.turn()
    assert await port.status(await port.book("other", cpu=1, start=60, lead=0, minutes=30)) == S.REFUSED
    await port.stopped(short)
    await port.turn()
    assert await port.status(await port.book("another", cpu=1, start=60, lead=0, minutes=30)) == S.REFUSED
    assert await port.status(await port.book("next", cpu=8, start=130, lead=0, minutes=30)) == S.CONFIRMED


async def test_a_booking_leaves_a_node_where_work_is_to_run_for_longer_than_it_was(port: Port):
    running = await port.submit("running", cpu=8, limit=1800)
    await port.turn()
    await port.run(running)
    booked = await port.book(cpu=8, start=60, lead=0)
    assert await port.places(booked) == {"a": 1}
    await port.harbour.node("b", cpu=8)
    await port.extend(running, 4 * 3600)
    await port.turn()
    assert await port.places(booked) == {"b": 1}


async def test_nobody_is_displaced_for_work_that_would_run_into_a_booking(port: Port):
    await port.harbour.set_options(preemption={"mode": "requeue"})
    running = await port.submit("running", cpu=8, limit=1800, priority=1)
    await port.turn()
    await port.run(running)
    booked = await port.book(cpu=8, start=60, lead=0)
    assert await port.status(booked) == S.CONFIRMED
    urgent = await port.submit("urgent", cpu=8, priority=90)
    await port.turn()
    assert await port.harbour.statuses(running) == ["RUNNING"]
    assert await port.harbour.statuses(urgent) == ["PENDING"]


async def test_gangs_inside_a_booking_have_no_more_than_its_room(port: Port):
    await port.harbour.node("b", cpu=8)
    booked = await port.book(cpu=2, count=3, start=10, lead=10)
    gang = await port.submit("gang", booked, cpu=2, replicas=4, gang=True)
    fits = await port.submit("fits", booked, cpu=2, replicas=3, gang=True)
    await port.turn()
    assert await port.node_of(gang) == [None] * 4
    assert None not in await port.node_of(fits)
    late = await port.submit("late", booked, cpu=1)
    await port.turn()
    assert (await port.node_of(late), await port.why(late)) == ([None], "timeslot-full")


async def test_guests_of_a_booking_that_is_cancelled_while_they_are_placed_end_with_it(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8)
    await port.cancel(booked)
    late = await port.submit("late", booked, cpu=8)
    await port.turn()
    assert [(await port.harbour.workload(each)).status for each in (guest, late)] == ["CANCELLED", "CANCELLED"]
    other = await port.submit("other", cpu=8)
    await port.turn()
    assert await port.node_of(other) == ["a"]


async def test_a_booking_at_risk_is_charged_for_the_work_in_it(port: Port):
    await port.harbour.node("b", cpu=4)
    booked = await port.book(cpu=4, count=3, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=4)
    await port.turn()
    await port.run(guest)
    user = Tenant(Scope.USER, str(port.harbour.principal.user_id))
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 12000
    (task,) = await port.harbour.tasks(guest)
    (other,) = (await port.slot(booked)).places.keys() - {task.node_id}
    await port.harbour.drain(other)
    await port.turn()
    assert await port.status(booked) == S.AT_RISK
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 12000
