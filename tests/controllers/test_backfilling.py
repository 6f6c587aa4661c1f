"""Backfill in the leader's turn: planned starts are kept, stored, moved and given up."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from uuid import UUID

import pytest

from mooring import clock, metrics
from mooring.binding.binder import Binder
from mooring.controllers.scheduling import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.terms import Terms
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus
HOUR = 3600
GRACE = 10
"""That tasks have to stop."""


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
async def loop(hands: Hands, harbour: Harbour) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    await loop.start()
    yield loop
    loop.close()


async def settle(loop: SchedulingLoop) -> int:
    """Turns until there is no more to do; how many that took."""
    for number in range(1, 20):
        if not await loop.once():
            return number
    raise AssertionError("the loop finds no rest")


async def job(harbour: Harbour, name: str, cpu: int, seconds: int | None) -> UUID:
    return await harbour.submit(name, cpu=cpu, terms=Terms(time_limit_seconds=seconds))


async def start(harbour: Harbour, *ids: UUID) -> None:
    for id in ids:
        for task in await harbour.tasks(id):
            await harbour.move(task, T.RUNNING)


async def planned(harbour: Harbour, id: UUID) -> datetime | None:
    found: datetime | None = (await harbour.workload(id)).planned_start_at
    return found


async def test_short_work_goes_before_the_planned_start_and_long_work_waits_for_it(
    harbour: Harbour, loop: SchedulingLoop, hands: Hands
):
    await harbour.node("n1", cpu=4)
    first = await job(harbour, "first", 3, HOUR)
    await settle(loop)
    await start(harbour, first)
    head, long = await job(harbour, "head", 4, HOUR), await job(harbour, "long", 1, 2 * HOUR)
    short = await job(harbour, "short", 1, HOUR - 2 * GRACE)
    await settle(loop)
    statuses = [(await harbour.statuses(id))[0] for id in (head, long, short)]
    assert statuses == ["PENDING", "PENDING", "SCHEDULED"]
    latest = hands.time + timedelta(seconds=HOUR + GRACE)
    assert await planned(harbour, head) in (latest, latest + timedelta(seconds=1))
    assert await planned(harbour, long) is None
    await start(harbour, short)
    # It is written when it is another, and not with every turn.
    version = (await harbour.workload(head)).updated_at
    hands.time += timedelta(seconds=60)
    await job(harbour, "other", 4, HOUR)
    await settle(loop)
    assert (await harbour.workload(head)).updated_at == version
    # What ends early brings the head forward.
    hands.time += timedelta(seconds=60)
    for id in (first, short):
        [task] = await harbour.tasks(id)
        await harbour.move(task, T.SUCCEEDED)
    early = metrics.registry.get_sample_value("mooring_start_error_seconds_count", {"start": "early"}) or 0
    await settle(loop)
    assert await harbour.statuses(head) == ["SCHEDULED"]
    assert metrics.registry.get_sample_value("mooring_start_error_seconds_count", {"start": "early"}) == early + 1
    assert await harbour.findings() == []


async def test_what_a_plan_kept_back_starts_when_who_it_was_for_gives_up(harbour: Harbour, loop: SchedulingLoop):
    await harbour.node("n1", cpu=4)
    first = await job(harbour, "first", 3, HOUR)
    await settle(loop)
    await start(harbour, first)
    head, long = await job(harbour, "head", 4, HOUR), await job(harbour, "long", 1, 2 * HOUR)
    await settle(loop)
    assert await harbour.statuses(long) == ["PENDING"]
    await harbour.stop(head)
    await settle(loop)
    assert await harbour.statuses(long) == ["SCHEDULED"]


@on_sqlite
async def test_one_that_comes_to_be_first_takes_over_the_plan(harbour: Harbour, loop: SchedulingLoop):
    await harbour.node("n1", cpu=4)
    first = await job(harbour, "first", 4, HOUR)
    await settle(loop)
    await start(harbour, first)
    head = await job(harbour, "head", 4, HOUR)
    await settle(loop)
    assert await planned(harbour, head) is not None
    urgent = await harbour.submit("urgent", cpu=4, priority=90, terms=Terms(time_limit_seconds=HOUR))
    await settle(loop)
    assert (await planned(harbour, urgent) is not None, await planned(harbour, head)) == (True, None)


@on_sqlite
async def test_others_pass_work_whose_start_is_not_known_for_an_hour_and_then_no_more(
    harbour: Harbour, loop: SchedulingLoop, hands: Hands
):
    await harbour.node("n1", cpu=4)
    first = await job(harbour, "first", 3, None)
    await settle(loop)
    await start(harbour, first)
    head = await job(harbour, "head", 4, HOUR)
    before = await job(harbour, "before", 1, None)
    await settle(loop)
    assert await planned(harbour, head) is None
    assert await harbour.statuses(before) == ["SCHEDULED"]
    [task] = await harbour.tasks(before)
    await harbour.move(task, T.RUNNING, T.SUCCEEDED)
    hands.time += timedelta(hours=1)
    behind = await job(harbour, "behind", 1, None)
    await settle(loop)
    assert (await harbour.workload(behind)).reason["code"] == "blocked"
    [task] = await harbour.tasks(first)
    await harbour.move(task, T.SUCCEEDED)
    await settle(loop)
    assert await harbour.statuses(head) == ["SCHEDULED"]


@on_sqlite
async def test_the_loop_rests_while_what_should_have_ended_does_not(
    harbour: Harbour, loop: SchedulingLoop, hands: Hands
):
    await harbour.node("n1", cpu=4)
    first = await job(harbour, "first", 3, 60)
    await settle(loop)
    await start(harbour, first)
    head, long = await job(harbour, "head", 4, HOUR), await job(harbour, "long", 1, HOUR)
    await settle(loop)
    hands.time += timedelta(seconds=200)
    assert await settle(loop) <= 3
    assert await harbour.statuses(long) == ["PENDING"]
    assert await harbour.statuses(head) == ["PENDING"]
    assert loop.wait_seconds(30) > 0


@on_sqlite
@pytest.mark.parametrize("seed", range(2))
async def test_work_starts_by_the_first_start_that_was_planned_for_it(
    harbour: Harbour, loop: SchedulingLoop, hands: Hands, seed: int
):
    """Whatever comes and however early it ends, as long as nobody jumps the queue."""
    chance = Random(seed)
    for name in ("n1", "n2"):
        await harbour.node(name, cpu=4)
    arrivals = sorted(hands.time + timedelta(seconds=chance.randrange(2 * HOUR)) for _ in range(16))
    plans: dict[UUID, datetime] = {}
    waiting: dict[UUID, timedelta] = {}
    ends: list[tuple[datetime, UUID]] = []
    while arrivals or ends:
        hands.time = min([*arrivals[:1], *(end for end, _ in ends[:1])])
        while ends and ends[0][0] <= hands.time:
            [task] = await harbour.tasks(heappop(ends)[1])
            await harbour.move(task, T.SUCCEEDED)
        while arrivals and arrivals[0] <= hands.time:
            arrivals.pop(0)
            limit = chance.choice([300, 1200, HOUR])
            new = await job(harbour, f"job-{len(arrivals)}", chance.choice([1, 2, 4]), limit)
            waiting[new] = timedelta(seconds=chance.randrange(1, limit))
        await settle(loop)
        for id in list(waiting):
            planned_at = await planned(harbour, id)
            if planned_at is not None:
                plans.setdefault(id, planned_at)
            if await harbour.statuses(id) == ["SCHEDULED"]:
                await start(harbour, id)
                heappush(ends, (hands.time + waiting.pop(id), id))
                assert hands.time <= plans.get(id, hands.time)
    assert plans
    assert await harbour.findings() == []
