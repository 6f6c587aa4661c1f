"""The leader stores about when pending work starts, and writes it again only when it has moved."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mooring import clock
from mooring.binding.binder import Binder
from mooring.controllers.scheduling.estimates import EstimatesLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.schedule import ScheduleOptions
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

HOUR = 3600


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = datetime(2027, 3, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr(clock, "source", hands)
    return hands


@pytest.fixture
async def scheduling(hands: Hands, harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    await loop.start()
    yield loop
    loop.close()


async def full_node(harness: Harness, scheduling: SchedulingLoop, *names: str) -> tuple[UUID, list[UUID]]:
    """A node on which one job of an hour runs, and others of two hours that wait for it."""
    await harness.node("n1", cpu=4)
    first = await harness.submit("first", cpu=4, schedule=ScheduleOptions(time_limit_seconds=HOUR))
    await settle(scheduling)
    [task] = await harness.tasks(first)
    await harness.move(task, TaskStatus.RUNNING)
    behind = [
        await harness.submit(name, cpu=4, schedule=ScheduleOptions(time_limit_seconds=2 * HOUR)) for name in names
    ]
    await settle(scheduling)
    return first, behind


async def settle(scheduling: SchedulingLoop) -> None:
    for _ in range(20):
        if not await scheduling.once():
            return
    raise AssertionError("the loop finds no rest")


async def whole_round(estimates: EstimatesLoop) -> None:
    await estimates.once()
    while estimates.wait_seconds(30) < 1:
        await estimates.once()


async def hours(harness: Harness, hands: Hands, *ids: UUID) -> list[float | None]:
    found = [(await harness.workload(id)).estimated_start_at for id in ids]
    return [None if at is None else round((at - hands.time).total_seconds() / HOUR, 1) for at in found]


async def test_pending_work_without_a_planned_start_has_an_estimate_that_follows_what_happens(
    harness: Harness, scheduling: SchedulingLoop, hands: Hands
):
    first, behind = await full_node(harness, scheduling, "head", "second", "third")
    estimates = EstimatesLoop(harness.fenced, scheduling)
    await whole_round(estimates)
    assert (await harness.workload(behind[0])).planned_start_at is not None
    assert await hours(harness, hands, *behind) == [None, 3, 5]
    hands.time += timedelta(seconds=60)
    [task] = await harness.tasks(first)
    await harness.move(task, TaskStatus.SUCCEEDED)
    await settle(scheduling)
    await whole_round(estimates)
    # The second is the head now, which has a planned start.
    assert await harness.statuses(behind[0]) == ["SCHEDULED"]
    assert (await hours(harness, hands, behind[2])) == [4]
    assert await harness.findings() == []


@on_sqlite
async def test_an_estimate_that_moved_a_little_is_not_written_again(
    harness: Harness, scheduling: SchedulingLoop, hands: Hands
):
    _, behind = await full_node(harness, scheduling, "head", "second")
    estimates = EstimatesLoop(harness.fenced, scheduling)
    await whole_round(estimates)
    before = (await harness.workload(behind[1])).estimated_start_at
    hands.time += timedelta(seconds=20)
    await harness.submit("other", cpu=4, schedule=ScheduleOptions(time_limit_seconds=HOUR))
    await settle(scheduling)
    await whole_round(estimates)
    assert (await harness.workload(behind[1])).estimated_start_at == before


@on_sqlite
async def test_work_behind_endless_work_has_no_estimate(harness: Harness, scheduling: SchedulingLoop, hands: Hands):
    _, [head] = await full_node(harness, scheduling, "head")
    endless, never = await harness.submit("endless", cpu=4), await harness.submit("never", cpu=4)
    await settle(scheduling)
    await whole_round(EstimatesLoop(harness.fenced, scheduling))
    assert await hours(harness, hands, head, endless, never) == [None, 3, None]


@on_sqlite
async def test_a_deposed_leader_stores_no_estimate(harness: Harness, scheduling: SchedulingLoop, hands: Hands):
    _, behind = await full_node(harness, scheduling, "head", "second")
    await Leadership(harness.database, "another").begin_term()
    with pytest.raises(LeadershipLost):
        await whole_round(EstimatesLoop(harness.fenced, scheduling))
    assert await hours(harness, hands, behind[1]) == [None]


@on_sqlite
async def test_work_is_expected_to_run_as_long_as_its_owners_last_runs_on_average(
    harness: Harness, scheduling: SchedulingLoop, hands: Hands
):
    for number in range(6):
        past = await harness.submit(f"past{number}", cpu=1, schedule=ScheduleOptions(time_limit_seconds=2 * HOUR))
        await harness.node(f"past{number}", cpu=1)
        await settle(scheduling)
        [task] = await harness.tasks(past)
        await harness.move(task, TaskStatus.RUNNING)
        hands.time += timedelta(minutes=20 if number % 2 else 40)
        await harness.move(task, TaskStatus.SUCCEEDED)
    _, behind = await full_node(harness, scheduling, "head", "second", "third")
    await whole_round(EstimatesLoop(harness.fenced, scheduling))
    # No work with a limit of one hour ran before: the head starts in an hour. Those of two hours took half an hour.
    assert await hours(harness, hands, *behind) == [None, 1.5, 2]


@on_sqlite
async def test_running_work_is_expected_to_end_as_the_last_runs_did_that_took_longer(
    harness: Harness, scheduling: SchedulingLoop, hands: Hands
):
    await harness.node("n1", cpu=4)
    for minutes in (10, 10, 10, 10, 50):
        past = await harness.submit(f"past{hands.time}", cpu=4)
        await settle(scheduling)
        [task] = await harness.tasks(past)
        await harness.move(task, TaskStatus.RUNNING)
        hands.time += timedelta(minutes=minutes)
        await harness.move(task, TaskStatus.SUCCEEDED)
    # Work without a limit counts as endless unless the owner's past says otherwise.
    endless = await harness.submit("endless", cpu=4)
    await settle(scheduling)
    [task] = await harness.tasks(endless)
    await harness.move(task, TaskStatus.RUNNING)
    hands.time += timedelta(minutes=20)
    waiting = await harness.submit("waiting", cpu=4, schedule=ScheduleOptions(time_limit_seconds=HOUR))
    await settle(scheduling)
    await whole_round(EstimatesLoop(harness.fenced, scheduling))
    assert await hours(harness, hands, waiting) == [0.5]
