"""The leader's turn: decide, commit, remember; and start from the store after anything that went wrong."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling import scheduling_loop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.workloads import lifecycle
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.scheduling.calendar.seconds import seconds_of
from mooring.services.administration.pools import PoolAdmin
from mooring.store.commit.bind import BindResult
from mooring.store.core.engine import Database
from mooring.wire.cluster.pools import PoolChange
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite


class UnreliableBinder(Binder):
    """A binder whose database goes away when the test says so."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.fails: Exception | None = None
        self.written = 0

    async def bind(self, decisions: Sequence[Decision], term: int, **terms: Any) -> BindResult:
        if self.fails is not None:
            raise self.fails
        self.written += len(decisions)
        return await super().bind(decisions, term, **terms)


class Iterations:
    def __init__(self, harness: Harness) -> None:
        self.binder = UnreliableBinder(harness.database)
        self.mirror = Mirror(harness.database)
        self.loop = SchedulingLoop(self.mirror, self.binder, harness.leadership)


@pytest.fixture
async def iterations(harness: Harness) -> AsyncIterator[Iterations]:
    iterations = Iterations(harness)
    await iterations.loop.start()
    yield iterations
    iterations.loop.close()


async def test_an_iteration_places_pending_work(harness: Harness, iterations: Iterations):
    await harness.node("n1")
    workload_id = await harness.submit("web", replicas=2)
    assert not await iterations.loop.once()
    assert await harness.statuses(workload_id) == ["SCHEDULED", "SCHEDULED"]
    assert iterations.loop.passes == 1
    assert not await iterations.loop.once()
    assert iterations.loop.passes == 1


async def test_an_unchanged_reason_to_wait_is_written_once(harness: Harness, iterations: Iterations):
    """Every write signals the loop: writing in every iteration would never stop."""
    workload_id = await harness.submit("web")
    await iterations.loop.once()
    version = (await harness.workload(workload_id)).version
    commits: list[None] = []
    harness.database.on_commit.append(lambda _topics: commits.append(None))
    written = iterations.binder.written
    for _ in range(3):
        await iterations.loop.once()
    assert (await harness.workload(workload_id)).version == version
    assert iterations.binder.written == written
    # A new reason is a change.
    await harness.node("n1", cpu="500m")
    await iterations.loop.once()
    assert (await harness.workload(workload_id)).version > version


async def test_a_failed_commit_takes_no_capacity(harness: Harness, iterations: Iterations):
    await harness.node("n1", cpu=1)
    workload_id = await harness.submit("web")
    iterations.binder.fails = ConnectionResetError("the database went away")
    with pytest.raises(ConnectionResetError):
        await iterations.loop.once()
    iterations.binder.fails = None
    await iterations.loop.once()
    assert await harness.statuses(workload_id) == ["SCHEDULED"]
    assert await harness.findings() == []


async def test_a_conflicting_workload_is_placed_again_on_the_current_state(harness: Harness, iterations: Iterations):
    """Another part of the node was taken between the look and the commit."""
    await harness.node("n1", cpu=2)
    small, large = await harness.submit("small"), await harness.submit("large", cpu=2)
    await iterations.mirror.follow()
    stolen = await harness.propose(ids=[small])
    follow, iterations.mirror.follow = iterations.mirror.follow, _nothing  # type: ignore[method-assign]
    del iterations.mirror.queue[small]
    await harness.bind(stolen)
    assert await iterations.loop.once()
    iterations.mirror.follow = follow  # type: ignore[method-assign]
    # No start can be planned behind a task without an end, so one more iteration looks for another head of the queue.
    assert await iterations.loop.once()
    assert not await iterations.loop.once()
    assert (await harness.workload(large)).reason["message"].startswith("0 of 1 node")
    assert await harness.findings() == []


async def _nothing() -> bool:
    return False


async def test_a_deposed_leader_stops_at_its_first_commit(harness: Harness, iterations: Iterations):
    await harness.node("n1")
    workload_id = await harness.submit("web")
    await harness.start_term("newer")
    with pytest.raises(LeadershipLost):
        await iterations.loop.once()
    assert await harness.statuses(workload_id) == ["PENDING"]


async def test_the_loop_sleeps_until_a_task_that_backs_off_is_due(
    harness: Harness, iterations: Iterations, monkeypatch: pytest.MonkeyPatch
):
    assert iterations.loop.wait_seconds(3600) == 3600
    # The replacement may be placed a second after the half hour, however slow this machine is.
    monkeypatch.setattr(lifecycle, "now", lambda: now() + timedelta(minutes=30))
    await harness.node("n1")
    service = await harness.submit("web")
    await iterations.loop.once()
    [task] = await harness.tasks(service)
    await harness.move(task, TaskStatus.FAILED)
    await harness.replace_ended()
    await iterations.loop.once()
    assert 0 < iterations.loop.wait_seconds(3600) <= 1801
    assert iterations.loop.wait_seconds(30) == 30
    assert await harness.statuses(service) == ["PENDING"]


async def test_unschedulable_work_is_requeued_when_it_could_be_placed_and_not_before(
    harness: Harness, iterations: Iterations
):
    await harness.node("n1", cpu=2)
    holder, small = await harness.submit("holder"), await harness.submit("small")
    await iterations.loop.once()
    large = await harness.submit("large", cpu=2)
    await iterations.loop.once()
    [first] = await harness.tasks(holder)
    await harness.move(first, TaskStatus.FAILED)
    await iterations.loop.once()
    assert iterations.loop.pending_queue.tries == 0
    [second] = await harness.tasks(small)
    await harness.move(second, TaskStatus.FAILED)
    await iterations.loop.once()
    assert iterations.loop.pending_queue.tries == 1
    assert await harness.statuses(large) == ["SCHEDULED"]


async def test_the_timer_retries_everything_and_finds_nothing_that_no_event_announced(
    harness: Harness, iterations: Iterations
):
    await harness.node("n1", cpu=1)
    await harness.submit("w", cpu=2)
    await iterations.loop.once()
    passes = iterations.loop.passes
    await iterations.loop.once()
    assert iterations.loop.passes == passes
    iterations.loop._reconcile_interval = 0
    await iterations.loop.once()
    assert iterations.loop.passes == passes + 1
    assert iterations.loop.pending_queue.found_by_timer == 0


async def test_the_reasons_of_a_flood_are_written_over_several_iterations(harness: Harness, iterations: Iterations):
    await harness.node("n1", cpu=1)
    flood = [
        await harness.submit(f"w{number}", cpu=2 + number)
        for number in range(scheduling_loop._REASONS_PER_ITERATION + 1)
    ]
    assert await iterations.loop.once()
    received = [await harness.workload(workload_id) for workload_id in flood]
    assert sum(bool(workload.reason) for workload in received) == scheduling_loop._REASONS_PER_ITERATION
    # The rest of the reasons; no start can be planned, so one more iteration looks for another head of the queue.
    assert await iterations.loop.once()
    assert not await iterations.loop.once()
    assert all([(await harness.workload(workload_id)).reason for workload_id in flood])


async def test_a_reason_is_not_written_again_for_amounts_that_moved(harness: Harness, iterations: Iterations):
    await harness.node("n1", cpu=4)
    waits = await harness.submit("waits", cpu=5)
    await iterations.loop.once()
    version = (await harness.workload(waits)).version
    await harness.submit("other")
    await iterations.loop.once()
    assert (await harness.workload(waits)).version == version


async def test_a_changed_policy_requeues_the_work_of_its_pool(harness: Harness, iterations: Iterations):
    await harness.submit("w")
    await iterations.loop.once()
    passes = iterations.loop.passes
    await PoolAdmin(harness.database).change("default", PoolChange(profile="pack"))
    await iterations.loop.once()
    assert iterations.loop.passes == passes + 1


async def test_the_loop_runs_when_a_booking_begins_or_ends_while_work_is_pending(
    harness: Harness, iterations: Iterations
):
    await harness.node("n1", cpu=1)
    await iterations.mirror.follow()
    timeline = iterations.mirror.cluster.timeline
    timeline.add("lab", 0, seconds_of(now()) + 100, seconds_of(now()) + 200, {"cpu": 1000})
    assert iterations.loop.wait_seconds(600) == 600
    await harness.submit("large", cpu=2)
    await iterations.loop.once()
    assert iterations.loop.wait_seconds(600) <= 100
    timeline.advance(seconds_of(now()) + 150)
    assert 100 < iterations.loop.wait_seconds(600) <= 200
