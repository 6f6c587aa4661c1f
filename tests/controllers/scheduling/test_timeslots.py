"""Timeslots under a leader: decided, reserved, relocated when their capacity is lost, and advanced by time."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from mooring import clock
from mooring.mirror.mirror import Mirror
from mooring.model.calendar.timeslots import TimeslotKind, TimeslotStatus
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.core.ids import new_id
from mooring.store.reservations import timeslots
from mooring.store.reservations.due_timeslots import ENDS_SOON
from tests.controllers.port import NINE, ManualClock, Port
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite
S = TimeslotStatus


@pytest.fixture
async def port(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    clock_at_nine = ManualClock()
    monkeypatch.setattr(clock, "source", clock_at_nine)
    port = Port(harness, clock_at_nine)
    await harness.node("a", cpu=8)
    yield port
    assert await differences(port.mirror, harness.database) == []
    assert await harness.findings() == []
    port.scheduling.close()


async def test_a_request_that_fits_is_confirmed_with_its_placement(port: Port):
    booked = await port.book(count=2)
    assert await port.status(booked) == S.CONFIRMED
    assert await port.placements(booked) == {"a": 2}


async def test_a_booking_that_does_not_fit_is_refused_with_alternatives(port: Port):
    await port.book("first", cpu=6)
    second = await port.book("second", cpu=1, count=4)
    assert await port.status(second) == S.REFUSED
    row = await port.row(second)
    assert row.reason["code"] == "no-room"
    # The first has its capacity from its lead to its end; the second needs its own lead before its start.
    later = NINE + timedelta(minutes=120 + 35)
    assert row.reason["details"]["alternatives"] == {"start": later.isoformat(), "count": 2}
    assert row.reason["message"].endswith("it fits from 2027-03-01T11:35+00:00, or with 2 instead of 4")


async def test_an_alternative_names_the_second_where_the_minute_would_be_too_early(port: Port):
    await port.book("first", cpu=8, minutes=60.5)
    row = await port.row(await port.book("second", cpu=8))
    received = row.reason["details"]["alternatives"]["start"]
    assert received.endswith(":30+00:00")
    assert row.reason["message"].endswith(f"it fits from {received}")


async def test_a_booking_that_no_node_can_take_is_refused(port: Port):
    booked = await port.book(architecture="riscv64")
    assert await port.status(booked) == S.REFUSED
    assert (await port.row(booked)).reason["message"].endswith("nor for fewer tasks or at a later time")


async def test_one_booking_may_begin_when_another_ends(port: Port):
    first = await port.book("first", cpu=8, lead=0, start=60, minutes=60)
    second = await port.book("second", cpu=8, lead=0, start=120, minutes=60)
    assert (await port.status(first), await port.status(second)) == (S.CONFIRMED, S.CONFIRMED)


async def test_others_run_in_the_gap_if_they_end_before_a_booking_begins(port: Port):
    await port.book(cpu=8, start=60, lead=30)
    short = await port.submit("short", cpu=8, limit=29 * 60)
    await port.iterate()
    assert await port.node_of(short) == ["a"]
    long = await port.submit("long", cpu=1, limit=31 * 60)
    await port.iterate()
    assert await port.node_of(long) == [None]


async def test_work_behind_a_booking_is_requeued_when_the_booking_is_cancelled(port: Port):
    booked = await port.book(cpu=8)
    waits = await port.submit("endless", cpu=8)
    await port.iterate()
    assert await port.why(waits) == "booked"
    await port.cancel(booked)
    await port.iterate()
    assert await port.node_of(waits) == ["a"]


async def test_work_of_a_booking_waits_for_the_lead_and_then_gets_the_capacity(port: Port):
    booked = await port.book(cpu=4, count=2, start=60, lead=35)
    early = await port.submit("early", booked, cpu=4)
    await port.iterate()
    assert await port.why(early) == "before-timeslot"
    await port.iterate(minutes=24, seconds=59)
    assert (await port.status(booked), await port.node_of(early)) == (S.CONFIRMED, [None])
    assert port.scheduling.wait_seconds(30) == pytest.approx(1)
    assert port.timeslots.alarm.wait_seconds(30) == pytest.approx(1)
    await port.iterate(seconds=1)
    assert (await port.status(booked), await port.node_of(early)) == (S.ACTIVE, ["a"])
    others = await port.submit("others", cpu=5)
    guest = await port.submit("guest", booked, cpu=4)
    late = await port.submit("late", booked, cpu=1)
    await port.iterate()
    assert await port.node_of(others) == [None]
    assert await port.node_of(guest) == ["a"]
    assert await port.why(late) == "timeslot-full"
    # Its capacity is free again when its work has ended.
    await port.run(guest)
    await port.stopped(guest)
    await port.iterate()
    assert await port.node_of(late) == ["a"]
    assert await port.node_of(others) == [None]


async def test_a_booking_ends_with_notice_and_its_work_with_it(port: Port):
    booked = await port.book(cpu=8, start=60, minutes=60, lead=0)
    next_one = await port.book("next", cpu=8, start=120, minutes=60, lead=0)
    running, waiting = await port.submit("running", booked, cpu=8), await port.submit("waiting", booked, cpu=8)
    for_next = await port.submit("for-next", next_one, cpu=8)
    await port.iterate(minutes=60)
    await port.run(running)
    await port.iterate(minutes=54)
    assert ENDS_SOON not in [event.kind for event in await port.harness.feed(booked)]
    await port.iterate(minutes=1)
    await port.iterate(minutes=1)
    assert [event.kind for event in await port.harness.feed(booked)].count(ENDS_SOON) == 1
    await port.iterate(minutes=4)
    assert (await port.status(booked), await port.status(next_one)) == (S.ENDED, S.ACTIVE)
    assert await port.harness.statuses(running) == ["TERMINATING"]
    ended = await port.harness.workload(waiting)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "timeslot-over")
    await port.stopped(running)
    await port.iterate()
    gone = await port.harness.workload(running)
    assert (gone.status, gone.reason["message"]) == ("CANCELLED", "The booking has ended")
    assert await port.node_of(for_next) == ["a"]


async def test_a_lab_that_could_not_start_in_time_has_missed_it(port: Port):
    lab = await port.book("lab", kind=TimeslotKind.LAB, cpu=4, start=10, lead=5, grace_seconds=300)
    work = await port.submit("work", lab, cpu=5)
    await port.iterate(minutes=15)
    assert await port.status(lab) == S.ACTIVE
    await port.iterate(milliseconds=1)
    assert (await port.status(lab), await port.code(lab)) == (S.EXPIRED, "timeslot-missed")
    ended = await port.harness.workload(work)
    assert (ended.status, ended.reason["code"]) == ("EXPIRED", "timeslot-missed")


async def test_a_lab_whose_work_has_ended_is_given_back(port: Port):
    lab = await port.book("lab", kind=TimeslotKind.LAB, cpu=4, start=10, lead=10)
    work = await port.submit("work", lab, cpu=4)
    far = await port.book("far", kind=TimeslotKind.LAB, cpu=4, start=600)
    unwanted = await port.submit("unwanted", far, cpu=4)
    await port.iterate()
    await port.run(work)
    await port.stopped(work)
    await port.harness.stop(unwanted)
    await port.iterate()
    assert (await port.status(lab), await port.status(far)) == (S.RELEASED, S.CANCELLED)


async def test_a_booking_that_nobody_uses_is_released(port: Port):
    unused = await port.book("unused", start=10, lead=0, release_after_seconds=600)
    used = await port.book("used", start=10, lead=0, release_after_seconds=600)
    guest = await port.submit("guest", used, cpu=1)
    await port.iterate(minutes=10)
    await port.run(guest)
    await port.iterate(minutes=9)
    assert (await port.status(unused), await port.status(used)) == (S.ACTIVE, S.ACTIVE)
    await port.iterate(minutes=1)
    assert (await port.status(unused), await port.status(used)) == (S.RELEASED, S.ACTIVE)
    await port.stopped(guest)
    await port.iterate(minutes=9)
    assert await port.status(used) == S.ACTIVE
    await port.iterate(minutes=1)
    assert (await port.status(used), await port.code(used)) == (S.RELEASED, "unused")


async def test_a_booking_whose_node_is_drained_goes_elsewhere(port: Port):
    booked = await port.book(count=2)
    b = await port.harness.node("b", cpu=16)
    (a,) = (await port.slot(booked)).placements
    await port.harness.drain(a)
    await port.iterate()
    assert (await port.status(booked), await port.placements(booked)) == (S.CONFIRMED, {"b": 2})
    assert [event.kind for event in await port.harness.feed(booked)] == ["REQUESTED", "CONFIRMED", "moved"]
    await port.harness.drain(a, False)
    await port.harness.drain(b)
    await port.iterate()
    assert await port.placements(booked) == {"a": 2}


async def test_without_other_capacity_a_booking_is_at_risk_and_none_is_confirmed_before_it(port: Port):
    booked = await port.book(cpu=8)
    (a,) = (await port.slot(booked)).placements
    await port.harness.drain(a)
    await port.iterate()
    assert (await port.status(booked), await port.code(booked)) == (S.AT_RISK, "capacity-lost")
    await port.harness.node("b", cpu=4)
    same_time, later = await port.book("same-time", cpu=1), await port.book("later", cpu=1, start=600)
    assert await port.code(same_time) == "bookings-at-risk"
    assert await port.status(later) == S.CONFIRMED
    await port.harness.drain(a, False)
    await port.iterate()
    assert (await port.status(booked), await port.placements(booked)) == (S.CONFIRMED, {"a": 1})


async def test_a_node_that_shrank_keeps_the_oldest_bookings(port: Port):
    first, second = await port.book("first", cpu=4), await port.book("second", cpu=4)
    (a,) = (await port.slot(first)).placements
    await port.harness.connect(a, {"cpu": 6000, "memory": 16 << 30}, port.clock.at)
    await port.iterate()
    assert (await port.status(first), await port.status(second)) == (S.CONFIRMED, S.AT_RISK)


async def test_maintenance_relocates_bookings_and_excludes_work(port: Port):
    b = await port.harness.node("b", cpu=16)
    booked = await port.book(cpu=8)
    assert await port.placements(booked) == {"a": 1}
    (a,) = (await port.slot(booked)).placements
    upkeep = await port.maintain(a, start=60, minutes=60)
    await port.iterate()
    assert await port.placements(booked) == {"b": 1}
    endless = await port.submit("endless", cpu=8)
    await port.iterate()
    assert await port.node_of(endless) == ["b"]
    short, long = await port.submit("short", cpu=8, limit=600), await port.submit("long", cpu=1, limit=3601)
    await port.iterate()
    assert await port.node_of(short) == ["a"]
    assert await port.node_of(long) == [None]
    await port.iterate(minutes=60)
    assert await port.status(upkeep) == S.ACTIVE
    await port.iterate(minutes=60)
    assert await port.status(upkeep) == S.ENDED
    assert b not in (await port.slot(upkeep)).placements


async def test_a_change_that_fits_replaces_the_booking(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10, minutes=60)
    guest = await port.submit("guest", booked, cpu=8)
    await port.iterate()
    await port.run(guest)
    old = await port.slot(booked)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, placements={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harness.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.iterate()
    assert (await port.status(booked), await port.status(longer.id)) == (S.CANCELLED, S.ACTIVE)
    assert await port.placements(longer.id) == {"a": 1}
    await port.iterate(minutes=80)
    assert await port.harness.statuses(guest) == ["RUNNING"]


async def test_a_change_that_does_not_fit_leaves_everything_as_it_was(port: Port):
    booked = await port.book(cpu=8, start=10, lead=0, minutes=60)
    await port.book("next", cpu=8, start=70, lead=0, minutes=60)
    old = await port.slot(booked)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, placements={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harness.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.iterate()
    assert (await port.status(booked), await port.status(longer.id)) == (S.CONFIRMED, S.REFUSED)
    assert await port.status(await port.book("beside", cpu=1, start=10, lead=0)) == S.REFUSED


async def test_a_timeslot_in_force_is_charged_to_its_booker(port: Port):
    booked = await port.book(cpu=3, count=2, start=10, lead=0)
    user = Tenant(Scope.USER, str(port.harness.principal.user_id))
    guest = await port.submit("guest", booked, cpu=3)
    await port.iterate(minutes=10)
    await port.run(guest)
    await port.iterate()
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 6000
    await port.iterate(minutes=60)
    await port.stopped(guest)
    await port.iterate()
    assert port.mirror.tenancy.usage.used_by(user).get("cpu", 0) == 0


async def test_undecided_requests_are_decided_by_the_next_leader(port: Port):
    booked = await port.ask()
    standby = Mirror(port.harness.database)
    await standby.load()
    assert standby.calendar.undecided
    await port.iterate()
    await standby.follow()
    assert await standby.agrees()
    assert standby.cluster.timeslots.left(booked) == port.mirror.cluster.timeslots.left(booked)


async def test_a_booking_leaves_a_drained_node_when_its_work_has_left(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8, type="batch")
    await port.iterate()
    await port.run(guest)
    await port.harness.node("b", cpu=8)
    (task,) = await port.harness.tasks(guest)
    assert task.status == TaskStatus.RUNNING
    await port.harness.drain(task.node_id)
    await port.iterate()
    # Its capacity stays reserved while its work runs.
    assert await port.placements(booked) == {"a": 1}
    await port.stopped(guest)
    await port.iterate()
    assert await port.placements(booked) == {"b": 1}


async def test_work_of_a_timeslot_is_not_displaced(port: Port):
    await port.harness.set_options(preemption={"mode": "requeue"})
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8, priority=1)
    await port.iterate()
    await port.run(guest)
    urgent = await port.submit("urgent", cpu=8, priority=90)
    await port.iterate()
    assert await port.harness.statuses(guest) == ["RUNNING"]
    assert await port.node_of(urgent) == [None]


async def test_a_booking_at_risk_uses_the_capacity_that_it_has(port: Port):
    b = await port.harness.node("b", cpu=4)
    booked = await port.book(cpu=4, count=3, start=10, lead=5)
    assert await port.placements(booked) == {"a": 2, "b": 1}
    await port.harness.drain(b)
    inside = [await port.submit(f"guest-{number}", booked, cpu=4) for number in range(3)]
    await port.iterate(minutes=5)
    assert await port.status(booked) == S.AT_RISK
    assert [await port.node_of(guest) for guest in inside] == [["a"], ["a"], [None]]


async def test_a_pool_whose_rules_fail_refuses_bookings_and_stops_nothing(port: Port):
    await port.harness.set_options(profile="no-such-profile")
    assert await port.status(await port.book()) == S.REFUSED


async def test_a_booking_that_lost_two_nodes_is_at_risk_until_both_are_replaced(port: Port):
    b = await port.harness.node("b", cpu=8)
    booked = await port.book(cpu=8, count=2)
    a = next(node_id for node_id in (await port.slot(booked)).placements if node_id != b)
    await port.harness.drain(a)
    await port.harness.drain(b)
    await port.iterate()
    assert await port.status(booked) == S.AT_RISK
    await port.harness.node("c", cpu=8)
    # One of its nodes reports again, and there is capacity for its part.
    await port.harness.connect(b, {"cpu": 9000, "memory": 16 << 30}, port.clock.at)
    await port.iterate()
    assert await port.status(booked) == S.AT_RISK
    await port.harness.node("d", cpu=8)
    await port.iterate()
    assert (await port.status(booked), await port.placements(booked)) == (S.CONFIRMED, {"c": 1, "d": 1})


async def test_a_booking_leaves_a_node_that_was_silent_for_too_long(port: Port):
    booked = await port.book()
    (a,) = (await port.slot(booked)).placements
    await port.harness.node("b", cpu=8)
    await port.harness.fall_silent(a, port.clock.at + timedelta(seconds=1), NodeStatus.SUSPECT)
    await port.iterate()
    # It may be heard of in the next moment.
    assert await port.placements(booked) == {"a": 1}
    await port.harness.fall_silent(a, port.clock.at + timedelta(seconds=1), NodeStatus.LOST)
    await port.iterate()
    assert await port.placements(booked) == {"b": 1}


async def test_a_booking_leaves_a_node_that_is_lost_with_its_work(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8)
    await port.iterate()
    await port.run(guest)
    await port.harness.node("b", cpu=8)
    (task,) = await port.harness.tasks(guest)
    await port.harness.fall_silent(task.node_id, port.clock.at + timedelta(seconds=1))
    await port.harness.move(task, TaskStatus.LOST, freed=False)
    await port.iterate()
    assert await port.placements(booked) == {"b": 1}


async def test_maintenance_that_is_changed_stays_on_its_nodes(port: Port):
    b = await port.harness.node("b", cpu=8)
    upkeep = await port.maintain(b, start=60, minutes=60)
    await port.harness.drain(b)
    await port.iterate()
    old = await port.slot(upkeep)
    longer = replace(
        old, id=new_id(), status=S.REQUESTED, replaces=old.id, placements={}, ends_at=old.ends_at + timedelta(hours=1)
    )
    await port.harness.database.write(lambda c: timeslots.insert(c, [longer], port.clock.at))
    await port.iterate()
    assert (await port.status(upkeep), await port.status(longer.id)) == (S.CANCELLED, S.CONFIRMED)
    assert await port.placements(longer.id) == {"b": 1}


async def test_capacity_that_its_work_leaves_early_stays_with_the_booking(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10, minutes=120)
    short = await port.submit("short", booked, cpu=8, limit=600)
    await port.iterate()
    await port.run(short)
    await port.iterate()
    assert await port.status(await port.book("other", cpu=1, start=60, lead=0, minutes=30)) == S.REFUSED
    await port.stopped(short)
    await port.iterate()
    assert await port.status(await port.book("another", cpu=1, start=60, lead=0, minutes=30)) == S.REFUSED
    assert await port.status(await port.book("next", cpu=8, start=130, lead=0, minutes=30)) == S.CONFIRMED


async def test_a_booking_leaves_a_node_where_work_is_to_run_for_longer_than_it_was(port: Port):
    running = await port.submit("running", cpu=8, limit=1800)
    await port.iterate()
    await port.run(running)
    booked = await port.book(cpu=8, start=60, lead=0)
    assert await port.placements(booked) == {"a": 1}
    await port.harness.node("b", cpu=8)
    await port.extend(running, 4 * 3600)
    await port.iterate()
    assert await port.placements(booked) == {"b": 1}


async def test_work_that_would_overlap_a_booking_preempts_nothing(port: Port):
    await port.harness.set_options(preemption={"mode": "requeue"})
    running = await port.submit("running", cpu=8, limit=1800, priority=1)
    await port.iterate()
    await port.run(running)
    booked = await port.book(cpu=8, start=60, lead=0)
    assert await port.status(booked) == S.CONFIRMED
    urgent = await port.submit("urgent", cpu=8, priority=90)
    await port.iterate()
    assert await port.harness.statuses(running) == ["RUNNING"]
    assert await port.harness.statuses(urgent) == ["PENDING"]


async def test_gangs_of_a_booking_use_no_more_than_its_capacity(port: Port):
    await port.harness.node("b", cpu=8)
    booked = await port.book(cpu=2, count=3, start=10, lead=10)
    gang = await port.submit("gang", booked, cpu=2, replicas=4, gang=True)
    fits = await port.submit("fits", booked, cpu=2, replicas=3, gang=True)
    await port.iterate()
    assert await port.node_of(gang) == [None] * 4
    assert None not in await port.node_of(fits)
    late = await port.submit("late", booked, cpu=1)
    await port.iterate()
    assert (await port.node_of(late), await port.why(late)) == ([None], "timeslot-full")


async def test_work_placed_in_a_booking_while_it_is_cancelled_ends_with_it(port: Port):
    booked = await port.book(cpu=8, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=8)
    await port.cancel(booked)
    late = await port.submit("late", booked, cpu=8)
    await port.iterate()
    assert [(await port.harness.workload(each)).status for each in (guest, late)] == ["CANCELLED", "CANCELLED"]
    other = await port.submit("other", cpu=8)
    await port.iterate()
    assert await port.node_of(other) == ["a"]


async def test_a_booking_at_risk_is_charged_for_the_work_in_it(port: Port):
    await port.harness.node("b", cpu=4)
    booked = await port.book(cpu=4, count=3, start=10, lead=10)
    guest = await port.submit("guest", booked, cpu=4)
    await port.iterate()
    await port.run(guest)
    user = Tenant(Scope.USER, str(port.harness.principal.user_id))
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 12000
    (task,) = await port.harness.tasks(guest)
    (other,) = (await port.slot(booked)).placements.keys() - {task.node_id}
    await port.harness.drain(other)
    await port.iterate()
    assert await port.status(booked) == S.AT_RISK
    assert port.mirror.tenancy.usage.used_by(user)["cpu"] == 12000
