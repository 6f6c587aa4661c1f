"""Work without an end beside bookings: it uses capacity that is booked later, and is gone when the booking needs it."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from mooring import clock
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.model.calendar.timeslots import TimeslotStatus
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.eviction import BOOKING_BEGINS
from mooring.model.workloads.workload import Kind
from tests.controllers.port import ManualClock, Port
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

S, T = TimeslotStatus, TaskStatus
YEAR = 365 * 24 * 60
DAY = 24 * 60


@pytest.fixture
async def port(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Port]:
    clock_at_nine = ManualClock()
    monkeypatch.setattr(clock, "source", clock_at_nine)
    port = Port(harness, clock_at_nine)
    await harness.node("a", cpu=8)
    await harness.set_options(bookings={"open_ended": "displace"})
    yield port
    assert await differences(port.mirror, harness.database) == []
    assert await harness.findings() == []
    port.scheduling.close()


async def service(port: Port, name: str, *, cpu: int, **more: object) -> UUID:
    return await port.harness.submit(name, kind=Kind.DEPLOYMENT, cpu=cpu, memory="1Mi", **more)  # type: ignore[arg-type]


async def started(port: Port, workload_id: UUID) -> None:
    for task in await port.harness.tasks(workload_id):
        if task.status == T.SCHEDULED:
            await port.harness.move(task, T.PREPARING, T.RUNNING)


async def iterate(port: Port, **later: float) -> None:
    """Let time pass, then everything that it brings about, with what agents report of tasks that have to stop."""
    await port.iterate(**later)
    for _ in range(3):
        await DrainingLoop(port.harness.fenced).once()
        await port.iterate()


async def ended(port: Port, workload_id: UUID) -> None:
    for task in await port.harness.tasks(workload_id, current=False):
        if task.status == T.TERMINATING:
            await port.harness.move(task, T.CANCELLED)
    await port.harness.replace_ended()


@on_sqlite
async def test_a_service_starts_although_its_node_is_booked_in_a_year(port: Port):
    booked = await port.book(cpu=8, start=YEAR)
    web = await service(port, "web", cpu=8)
    await iterate(port)
    assert await port.node_of(web) == ["a"]
    assert await port.status(booked) == S.CONFIRMED


async def test_a_booking_within_the_notice_keeps_open_ended_work_away(port: Port):
    await port.book(cpu=8, start=DAY, lead=35)
    web = await service(port, "web", cpu=1)
    await iterate(port)
    assert await port.node_of(web) == [None]
    reason = (await port.harness.workload(web)).reason
    assert reason["code"] == "booked"
    assert "within 1d" in reason["message"]


@on_sqlite
async def test_a_pool_that_refuses_keeps_open_ended_work_off_whatever_is_booked(port: Port):
    await port.harness.set_options(bookings={"open_ended": "refuse"})
    await port.mirror.load()
    await port.book(cpu=8, start=YEAR)
    web = await service(port, "web", cpu=8)
    await iterate(port)
    assert await port.node_of(web) == [None]
    assert await port.why(web) == "booked"


@on_sqlite
async def test_a_pool_that_refuses_confirms_no_booking_over_open_ended_work(port: Port):
    await port.harness.set_options(bookings={"open_ended": "refuse"})
    web = await service(port, "web", cpu=8)
    await iterate(port)
    await started(port, web)
    assert await port.status(await port.book(cpu=8, start=YEAR)) == S.REFUSED


@on_sqlite
async def test_a_booking_displaces_the_work_of_others_only_if_the_pool_allows_it(port: Port):
    await port.harness.set_options()
    web = await service(port, "web", cpu=8)
    await iterate(port)
    await started(port, web)
    assert await port.status(await port.book(cpu=8, start=YEAR)) == S.REFUSED


async def test_open_ended_work_that_came_after_a_booking_leaves_for_it_by_default(port: Port):
    await port.harness.set_options()
    booked = await port.book(cpu=8, start=2 * DAY, lead=30)
    endless = await port.submit("endless", cpu=4, type="interactive")
    await iterate(port)
    await port.run(endless)
    await iterate(port, minutes=2 * DAY - 31, seconds=50)
    assert await port.harness.statuses(endless) == ["TERMINATING"]
    await ended(port, endless)
    await iterate(port, seconds=10)
    assert await port.status(booked) == S.ACTIVE


async def test_a_booking_is_confirmed_over_open_ended_work_only_with_notice(port: Port):
    web = await service(port, "web", cpu=8)
    await iterate(port)
    await started(port, web)
    assert await port.status(await port.book("soon", cpu=8, start=DAY, lead=35)) == S.REFUSED
    assert await port.status(await port.book("later", cpu=8, start=DAY + 36, lead=35)) == S.CONFIRMED


@on_sqlite
async def test_a_booking_prefers_capacity_that_nothing_has_to_leave(port: Port):
    web = await service(port, "web", cpu=8)
    await iterate(port)
    await started(port, web)
    await port.harness.node("b", cpu=8)
    assert await port.placements(await port.book(cpu=8, start=YEAR)) == {"b": 1}


async def test_a_session_is_stopped_by_its_grace_before_the_lead_and_the_booking_starts_in_time(port: Port):
    booked = await port.book(cpu=8, start=2 * DAY, lead=30)
    lecture = await port.submit("lecture", booked, cpu=8)
    endless = await port.submit("endless", cpu=4, type="interactive")
    await iterate(port)
    await port.run(endless)
    await iterate(port, minutes=2 * DAY - 31)
    assert await port.harness.statuses(endless) == ["RUNNING"]
    await iterate(port, seconds=49)
    assert await port.harness.statuses(endless) == ["RUNNING"]
    # Its owner was notified once.
    warnings = [
        row for row in await port.harness.history(endless) if "A booking takes its capacity" in (row.reason or "")
    ]
    assert len(warnings) == 1
    await iterate(port, seconds=1)
    [task] = await port.harness.tasks(endless)
    assert (task.status, task.reason["code"]) == (T.TERMINATING, BOOKING_BEGINS)
    await ended(port, endless)
    await iterate(port, seconds=10)
    assert (await port.status(booked), await port.node_of(lecture)) == (S.ACTIVE, ["a"])


async def test_replicas_are_replaced_elsewhere_before_a_booking_needs_their_node(port: Port):
    web = await service(port, "web", cpu=4, replicas=2, min_available=1)
    await iterate(port)
    await started(port, web)
    booked = await port.book(cpu=8, start=2 * DAY, lead=30)
    assert await port.status(booked) == S.CONFIRMED
    await port.harness.node("b", cpu=8)
    await iterate(port, minutes=2 * DAY - 60)
    # One at a time: its deployment can spare one.
    assert sorted(await port.harness.statuses(web)) == ["RUNNING", "SCHEDULED"]
    await started(port, web)
    await iterate(port)
    await started(port, web)
    assert sorted(await port.node_of(web), key=str) == ["b", "b"]
    await ended(port, web)
    lecture = await port.submit("lecture", booked, cpu=8)
    await iterate(port, minutes=31)
    assert (await port.status(booked), await port.node_of(lecture)) == (S.ACTIVE, ["a"])


async def test_replicas_that_cannot_be_spared_stop_at_the_lead_all_the_same(port: Port):
    web = await service(port, "web", cpu=8, replicas=1, min_available=1)
    await iterate(port)
    await started(port, web)
    booked = await port.book(cpu=8, start=2 * DAY, lead=30)
    lecture = await port.submit("lecture", booked, cpu=8)
    await iterate(port, minutes=2 * DAY - 31)
    assert await port.harness.statuses(web) == ["RUNNING"]
    await iterate(port, seconds=50)
    assert await port.harness.statuses(web) == ["PENDING"]
    await ended(port, web)
    await iterate(port, seconds=10)
    assert (await port.status(booked), await port.node_of(lecture)) == (S.ACTIVE, ["a"])


async def test_a_pool_that_refuses_from_now_on_keeps_what_it_promised(port: Port):
    booked = await port.book(cpu=8, start=2 * DAY, lead=30)
    lecture = await port.submit("lecture", booked, cpu=8)
    endless = await port.submit("endless", cpu=4, type="interactive")
    await iterate(port)
    await port.run(endless)
    await port.harness.set_options(bookings={"open_ended": "refuse"})
    next_leader = Port(port.harness, port.clock)
    await iterate(next_leader, minutes=2 * DAY - 31, seconds=50)
    await ended(port, endless)
    await iterate(next_leader, seconds=10)
    assert (await port.status(booked), await port.node_of(lecture)) == (S.ACTIVE, ["a"])
    next_leader.scheduling.close()
    await port.iterate()


async def test_nothing_leaves_that_fits_beside_the_booking(port: Port):
    booked = await port.book(cpu=4, start=2 * DAY, lead=30)
    beside = await port.submit("beside", cpu=2)
    web = await service(port, "web", cpu=4)
    await iterate(port)
    await port.run(beside)
    await started(port, web)
    await iterate(port, minutes=2 * DAY - 30)
    assert await port.harness.statuses(beside) == ["RUNNING"]
    assert await port.harness.statuses(web) == ["PENDING"]
    await ended(port, web)
    await iterate(port)
    assert await port.status(booked) == S.ACTIVE


@on_sqlite
async def test_open_ended_work_keeps_off_nodes_with_maintenance_ahead(port: Port):
    await port.maintain(await port.harness.node("b", cpu=8), start=YEAR)
    await port.book(cpu=8, start=60)
    web = await service(port, "web", cpu=1)
    await iterate(port)
    assert await port.node_of(web) == [None]


@on_sqlite
async def test_work_that_was_passed_by_for_too_long_does_not_keep_a_booking_from_its_capacity(port: Port):
    booked = await port.book(cpu=8, start=240, lead=30)
    waits = await port.submit("endless", cpu=8)
    for _ in range(5):
        await iterate(port, minutes=42)
    lecture = await port.submit("lecture", booked, cpu=8)
    await iterate(port)
    assert (await port.node_of(waits), await port.node_of(lecture)) == ([None], ["a"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("migrated_url", "seed"), [*(("sqlite", seed) for seed in range(6)), ("postgresql", 3)], indirect=["migrated_url"]
)
async def test_a_confirmed_booking_always_has_its_capacity_when_its_lead_begins(port: Port, seed: int):
    random = Random(seed)
    await port.harness.node("b", cpu=8)
    work: list[UUID] = []
    begins: dict[UUID, datetime] = {}
    tested = 0
    for step in range(24):
        match random.choice(["service", "session", "limited", "booking", "booking"]):
            case "service":
                more = {"replicas": random.randint(1, 3), "min_available": random.choice([None, 1])}
                work.append(await service(port, f"web{step}", cpu=random.randint(1, 5), **more))
            case "session":
                work.append(await port.submit(f"endless{step}", cpu=random.randint(1, 8), type="interactive"))
            case "limited":
                hours = random.randint(1, 60)
                work.append(await port.submit(f"job{step}", cpu=random.randint(1, 8), limit=hours * 3600))
            case "booking":
                how = {"cpu": random.randint(2, 8), "count": random.randint(1, 2), "minutes": random.choice([120, 600])}
                booked = await port.book(f"booking{step}", start=random.randint(2, 70) * 60, lead=30, **how)
                if await port.status(booked) == S.CONFIRMED:
                    begins[booked] = (await port.slot(booked)).eligible_at
        until = port.clock.at + timedelta(hours=random.randint(1, 8))
        while port.clock.at < until:
            # Never past the start of a lead, nor past the time at which its capacity has to be left.
            moments = [at - timedelta(seconds=before) for at in begins.values() for before in (0, 10, 1810)]
            next_at = min((at for at in moments if at > port.clock.at), default=until)
            await iterate(port, seconds=(min(next_at, until) - port.clock.at).total_seconds())
            for workload_id in work:
                await started(port, workload_id)
                await stop_overdue(port, workload_id)
                await ended(port, workload_id)
            for booked in [id for id, at in begins.items() if at <= port.clock.at]:
                del begins[booked]
                slot = await port.slot(booked)
                assert slot.status in (S.ACTIVE, S.CONFIRMED)
                cores = slot.request["cpu"] // 1000
                inside = [await port.submit(f"in{step}-{tested}-{n}", booked, cpu=cores) for n in range(slot.count)]
                await iterate(port)
                assert None not in [place for id in inside for place in await port.node_of(id)]
                for id in inside:
                    await port.run(id)
                work += inside
                tested += 1
    assert tested
    await iterate(port)


async def stop_overdue(port: Port, workload_id: UUID) -> None:
    """Report the end of running tasks whose time limit is over, as their agent does."""
    for task in await port.harness.tasks(workload_id):
        if task.status == T.RUNNING and task.deadline_at is not None and task.deadline_at <= port.clock.at:
            await port.harness.move(task, T.TERMINATING, T.CANCELLED)
