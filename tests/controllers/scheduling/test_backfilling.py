"""Backfill in the scheduling loop: planned starts are honoured, stored, changed and dropped."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from uuid import UUID

import pytest

from mooring import clock
from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.constraints import Constraints, HostPort
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.services.administration.pools import PoolAdmin
from mooring.store.views import workloads as views
from mooring.telemetry import metrics
from mooring.wire.cluster.pools import BackfillChange, PoolChange
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

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
async def loop(hands: Hands, harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    await loop.start()
    yield loop
    loop.close()


async def settle(loop: SchedulingLoop) -> int:
    """Turns until there is no more to do; how many that took."""
    for number in range(1, 20):
        if not await loop.once():
            return number
    raise AssertionError("the loop finds no rest")


async def job(harness: Harness, name: str, cpu: int, seconds: int | None) -> UUID:
    return await harness.submit(name, cpu=cpu, schedule=ScheduleOptions(time_limit_seconds=seconds))


async def start(harness: Harness, *ids: UUID) -> None:
    for id in ids:
        for task in await harness.tasks(id):
            await harness.move(task, T.RUNNING)


async def planned(harness: Harness, id: UUID) -> datetime | None:
    found: datetime | None = (await harness.workload(id)).planned_start_at
    return found


async def test_short_work_goes_before_the_planned_start_and_long_work_waits_for_it(
    harness: Harness, loop: SchedulingLoop, hands: Hands
):
    await harness.node("n1", cpu=4)
    first = await job(harness, "first", 3, HOUR)
    await settle(loop)
    await start(harness, first)
    head, long = await job(harness, "head", 4, HOUR), await job(harness, "long", 1, 2 * HOUR)
    short = await job(harness, "short", 1, HOUR - 2 * GRACE)
    await settle(loop)
    statuses = [(await harness.statuses(id))[0] for id in (head, long, short)]
    assert statuses == ["PENDING", "PENDING", "SCHEDULED"]
    latest = hands.time + timedelta(seconds=HOUR + GRACE)
    assert await planned(harness, head) in (latest, latest + timedelta(seconds=1))
    assert await planned(harness, long) is None
    await start(harness, short)
    # It is written when it is another, and not with every turn.
    version = (await harness.workload(head)).updated_at
    hands.time += timedelta(seconds=60)
    await job(harness, "other", 4, HOUR)
    await settle(loop)
    assert (await harness.workload(head)).updated_at == version
    # What ends early brings the head forward.
    hands.time += timedelta(seconds=60)
    for id in (first, short):
        [task] = await harness.tasks(id)
        await harness.move(task, T.SUCCEEDED)
    early = metrics.registry.get_sample_value("mooring_start_error_seconds_count", {"start": "early"}) or 0
    await settle(loop)
    assert await harness.statuses(head) == ["SCHEDULED"]
    assert metrics.registry.get_sample_value("mooring_start_error_seconds_count", {"start": "early"}) == early + 1
    assert await harness.findings() == []


async def test_the_nodes_of_a_planned_start_are_stored_and_follow_the_plan(
    harness: Harness, loop: SchedulingLoop, hands: Hands
):
    ids = {name: await harness.node(name, cpu=4) for name in ("n1", "n2")}
    running = [await job(harness, name, 4, HOUR) for name in ("first", "second")]
    await settle(loop)
    await start(harness, *running)
    head = await job(harness, "head", 3, HOUR)
    await settle(loop)
    before = await planned(harness, head)
    [node] = nodes = (await harness.workload(head)).planned_nodes
    assert nodes == {node: 1}
    # The start stays the same, but it is on the other node now.
    await harness.drain(ids[node])
    await job(harness, "another", 1, HOUR)
    await settle(loop)
    [other] = ids.keys() - {node}
    assert (await planned(harness, head), (await harness.workload(head)).planned_nodes) == (before, {other: 1})
    version = (await harness.workload(head)).updated_at
    hands.time += timedelta(seconds=60)
    await job(harness, "one more", 1, HOUR)
    await settle(loop)
    assert (await harness.workload(head)).updated_at == version


@on_sqlite
async def test_a_planned_gang_has_the_number_of_its_tasks_on_each_node(harness: Harness, loop: SchedulingLoop):
    for name, cpu in (("n1", 4), ("n2", 2)):
        await harness.node(name, cpu=cpu)
    running = [await job(harness, "first", 4, HOUR), await job(harness, "second", 2, HOUR)]
    await settle(loop)
    await start(harness, *running)
    gang = await harness.submit("gang", replicas=6, gang=True, schedule=ScheduleOptions(time_limit_seconds=HOUR))
    await settle(loop)
    assert (await harness.workload(gang)).planned_nodes == {"n1": 4, "n2": 2}


async def test_work_held_back_by_a_plan_starts_when_the_planned_work_is_cancelled(
    harness: Harness, loop: SchedulingLoop
):
    await harness.node("n1", cpu=4)
    first = await job(harness, "first", 3, HOUR)
    await settle(loop)
    await start(harness, first)
    head, long = await job(harness, "head", 4, HOUR), await job(harness, "long", 1, 2 * HOUR)
    await settle(loop)
    assert await harness.statuses(long) == ["PENDING"]
    await harness.stop(head)
    await settle(loop)
    assert await harness.statuses(long) == ["SCHEDULED"]


@on_sqlite
async def test_one_that_comes_to_be_first_takes_over_the_plan(harness: Harness, loop: SchedulingLoop):
    await harness.node("n1", cpu=4)
    first = await job(harness, "first", 4, HOUR)
    await settle(loop)
    await start(harness, first)
    head = await job(harness, "head", 4, HOUR)
    await settle(loop)
    assert await planned(harness, head) is not None
    urgent = await harness.submit("urgent", cpu=4, priority=90, schedule=ScheduleOptions(time_limit_seconds=HOUR))
    await settle(loop)
    assert (await planned(harness, urgent) is not None, await planned(harness, head)) == (True, None)


@on_sqlite
async def test_a_head_without_a_planned_start_holds_nothing_back_however_long_it_waits(
    harness: Harness, loop: SchedulingLoop, hands: Hands
):
    await harness.node("n1", cpu=4)
    first = await job(harness, "first", 3, None)
    await settle(loop)
    await start(harness, first)
    head = await job(harness, "head", 4, HOUR)
    before = await job(harness, "before", 1, None)
    await settle(loop)
    assert await planned(harness, head) is None
    assert await harness.statuses(before) == ["SCHEDULED"]
    [task] = await harness.tasks(before)
    await harness.move(task, T.RUNNING, T.SUCCEEDED)
    hands.time += timedelta(hours=1)
    behind = await job(harness, "behind", 1, None)
    await settle(loop)
    assert await harness.statuses(behind) == ["SCHEDULED"]
    assert await planned(harness, head) is None
    assert (await harness.workload(head)).reason["details"]["plan"]["code"] == "no-planned-start"
    await start(harness, behind)
    for each in (first, behind):
        [task] = await harness.tasks(each)
        await harness.move(task, T.SUCCEEDED)
    await settle(loop)
    assert await harness.statuses(head) == ["SCHEDULED"]


@on_sqlite
async def test_the_loop_rests_while_what_should_have_ended_does_not(
    harness: Harness, loop: SchedulingLoop, hands: Hands
):
    await harness.node("n1", cpu=4)
    first = await job(harness, "first", 3, 60)
    await settle(loop)
    await start(harness, first)
    head, long = await job(harness, "head", 4, HOUR), await job(harness, "long", 1, HOUR)
    await settle(loop)
    hands.time += timedelta(seconds=200)
    assert await settle(loop) <= 3
    assert await harness.statuses(long) == ["PENDING"]
    assert await harness.statuses(head) == ["PENDING"]
    assert loop.wait_seconds(30) > 0


@on_sqlite
@pytest.mark.parametrize("seed", range(2))
async def test_work_starts_by_the_first_start_that_was_planned_for_it(
    harness: Harness, loop: SchedulingLoop, hands: Hands, seed: int
):
    """Planned starts hold for any work that arrives and ends early, as long as none jumps the queue."""
    chance = Random(seed)
    for name in ("n1", "n2"):
        await harness.node(name, cpu=4)
    arrivals = sorted(hands.time + timedelta(seconds=chance.randrange(2 * HOUR)) for _ in range(16))
    plans: dict[UUID, datetime] = {}
    waiting: dict[UUID, timedelta] = {}
    ends: list[tuple[datetime, UUID]] = []
    while arrivals or ends:
        hands.time = min([*arrivals[:1], *(end for end, _ in ends[:1])])
        while ends and ends[0][0] <= hands.time:
            [task] = await harness.tasks(heappop(ends)[1])
            await harness.move(task, T.SUCCEEDED)
        while arrivals and arrivals[0] <= hands.time:
            arrivals.pop(0)
            limit = chance.choice([300, 1200, HOUR])
            new = await job(harness, f"job-{len(arrivals)}", chance.choice([1, 2, 4]), limit)
            waiting[new] = timedelta(seconds=chance.randrange(1, limit))
        await settle(loop)
        for id in list(waiting):
            planned_at = await planned(harness, id)
            if planned_at is not None:
                plans.setdefault(id, planned_at)
            if await harness.statuses(id) == ["SCHEDULED"]:
                await start(harness, id)
                heappush(ends, (hands.time + waiting.pop(id), id))
                assert hands.time <= plans.get(id, hands.time)
    assert plans
    assert await harness.findings() == []


@on_sqlite
async def test_a_plan_withholds_only_ports_that_are_not_released(harness: Harness, loop: SchedulingLoop, hands: Hands):
    await harness.node("n1", cpu=16)
    port = Constraints(host_ports=(HostPort(8080),))
    first = await harness.submit("first", cpu=1, schedule=ScheduleOptions(time_limit_seconds=HOUR), constraints=port)
    await settle(loop)
    await start(harness, first)
    head = await harness.submit("head", cpu=1, schedule=ScheduleOptions(time_limit_seconds=HOUR), constraints=port)
    others = [await job(harness, f"job-{number}", 1, None) for number in range(14)]
    await settle(loop)
    latest = hands.time + timedelta(seconds=HOUR + GRACE)
    assert await planned(harness, head) in (latest, latest + timedelta(seconds=1))
    assert [await harness.statuses(id) for id in others] == [["SCHEDULED"]] * 14
    [task] = await harness.tasks(first)
    await harness.move(task, T.SUCCEEDED)
    await settle(loop)
    assert await harness.statuses(head) == ["SCHEDULED"]
    await start(harness, head)
    assert await harness.findings() == []


@on_sqlite
async def test_work_without_a_planned_start_says_which_capacity_is_never_released(
    harness: Harness, loop: SchedulingLoop
):
    await harness.node("n1", cpu=4)
    port = Constraints(host_ports=(HostPort(8080),))
    first = await harness.submit("first", cpu=1, constraints=port)
    await settle(loop)
    await start(harness, first)
    head = await harness.submit("head", cpu=1, schedule=ScheduleOptions(time_limit_seconds=HOUR), constraints=port)
    open_ended = await job(harness, "open", 3, None)
    await settle(loop)
    assert await harness.statuses(open_ended) == ["SCHEDULED"]
    reason = (await harness.workload(head)).reason
    assert reason["details"]["plan"]["code"] == "no-planned-start"
    assert "with a port in use that it needs (8080/TCP)" in reason["details"]["plan"]["message"]


async def test_predictions_let_work_with_a_long_limit_fill_a_gap_where_the_pool_says_so(
    harness: Harness, loop: SchedulingLoop, hands: Hands
):
    await harness.node("n1", cpu=4)
    for number in range(2):
        ended = await job(harness, f"job-{number}", 1, 4 * HOUR)
        await settle(loop)
        await start(harness, ended)
        hands.time += timedelta(seconds=64)
        [task] = await harness.tasks(ended)
        await harness.move(task, T.SUCCEEDED)
    running = await job(harness, "running", 3, HOUR)
    await settle(loop)
    await start(harness, running)
    head, filler = await job(harness, "head", 4, HOUR), await job(harness, "job-2", 1, 4 * HOUR)
    await settle(loop)
    assert [task.status for task in await harness.tasks(filler)] == [T.PENDING]
    limits = await planned(harness, head)
    change = PoolChange(backfill=BackfillChange(expectation="recent"))
    await PoolAdmin(harness.database).change("default", change)
    await settle(loop)
    assert [task.status for task in await harness.tasks(filler)] == [T.SCHEDULED]
    assert [task.status for task in await harness.tasks(head)] == [T.PENDING]
    # The head is planned by the predicted ends, too.
    predicted = await planned(harness, head)
    assert limits is not None
    assert predicted is not None
    assert predicted < limits
    async with harness.database.read() as connection:
        row = await views.by_id(connection, head)
    assert row is not None
    assert row.predicts
