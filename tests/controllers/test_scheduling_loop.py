"""The leader's turn: decide, commit, remember; and start from the store after anything that went wrong."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers import lifecycle, scheduling
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.pools import PoolAdmin
from mooring.mirror.mirror import Mirror
from mooring.model.decisions import Decision
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus
from mooring.scheduling.timeline import seconds_of
from mooring.store.bind import Bound
from mooring.store.engine import Database
from mooring.wire.pools import PoolChange
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite


class UnreliableBinder(Binder):
    """A binder whose database goes away when the test says so."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.fails: Exception | None = None
        self.written = 0

    async def bind(self, decisions: Sequence[Decision], term: int, **terms: Any) -> Bound:
        if self.fails is not None:
            raise self.fails
        self.written += len(decisions)
        return await super().bind(decisions, term, **terms)


class Turns:
    def __init__(self, harbour: Harbour) -> None:
        self.binder = UnreliableBinder(harbour.database)
        self.mirror = Mirror(harbour.database)
        self.loop = SchedulingLoop(self.mirror, self.binder, harbour.office)


@pytest.fixture
async def turns(harbour: Harbour) -> AsyncIterator[Turns]:
    turns = Turns(harbour)
    await turns.loop.start()
    yield turns
    turns.loop.close()


async def test_a_turn_places_what_waits(harbour: Harbour, turns: Turns):
    await harbour.node("n1")
    workload_id = await harbour.submit("web", replicas=2)
    assert not await turns.loop.once()
    assert await harbour.statuses(workload_id) == ["SCHEDULED", "SCHEDULED"]
    assert turns.loop.passes == 1
    assert not await turns.loop.once()
    assert turns.loop.passes == 1


async def test_an_unchanged_reason_to_wait_is_written_once(harbour: Harbour, turns: Turns):
    """Every write wakes the loop: writing it at every turn would turn for ever."""
    workload_id = await harbour.submit("web")
    await turns.loop.once()
    version = (await harbour.workload(workload_id)).version
    commits: list[None] = []
    harbour.database.on_commit.append(lambda: commits.append(None))
    written = turns.binder.written
    for _ in range(3):
        await turns.loop.once()
    assert (await harbour.workload(workload_id)).version == version
    assert turns.binder.written == written
    # A new reason is a change.
    await harbour.node("n1", cpu="500m")
    await turns.loop.once()
    assert (await harbour.workload(workload_id)).version > version


async def test_a_commit_that_failed_takes_no_room(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=1)
    workload_id = await harbour.submit("web")
    turns.binder.fails = ConnectionResetError("the database went away")
    with pytest.raises(ConnectionResetError):
        await turns.loop.once()
    turns.binder.fails = None
    await turns.loop.once()
    assert await harbour.statuses(workload_id) == ["SCHEDULED"]
    assert await harbour.findings() == []


async def test_what_conflicts_is_placed_again_from_what_is_true(harbour: Harbour, turns: Turns):
    """Another part of the node was taken between the look and the commit."""
    await harbour.node("n1", cpu=2)
    small, large = await harbour.submit("small"), await harbour.submit("large", cpu=2)
    await turns.mirror.follow()
    stolen = await harbour.propose(ids=[small])
    follow, turns.mirror.follow = turns.mirror.follow, _nothing  # type: ignore[method-assign]
    del turns.mirror.queue[small]
    await harbour.bind(stolen)
    assert await turns.loop.once()
    turns.mirror.follow = follow  # type: ignore[method-assign]
    assert not await turns.loop.once()
    assert (await harbour.workload(large)).reason["message"].startswith("0 of 1 node")
    assert await harbour.findings() == []


async def _nothing() -> bool:
    return False


async def test_a_deposed_leader_stops_at_its_first_commit(harbour: Harbour, turns: Turns):
    await harbour.node("n1")
    workload_id = await harbour.submit("web")
    await harbour.take_office("newer")
    with pytest.raises(LeadershipLost):
        await turns.loop.once()
    assert await harbour.statuses(workload_id) == ["PENDING"]


async def test_the_loop_sleeps_until_a_task_that_backs_off_is_due(
    harbour: Harbour, turns: Turns, monkeypatch: pytest.MonkeyPatch
):
    assert turns.loop.wait_seconds(3600) == 3600
    # The replacement may be placed a second after the half hour, however slow this machine is.
    monkeypatch.setattr(lifecycle, "now", lambda: now() + timedelta(minutes=30))
    await harbour.node("n1")
    service = await harbour.submit("web")
    await turns.loop.once()
    [task] = await harbour.tasks(service)
    await harbour.move(task, TaskStatus.FAILED)
    await harbour.replace_ended()
    await turns.loop.once()
    assert 0 < turns.loop.wait_seconds(3600) <= 1801
    assert turns.loop.wait_seconds(30) == 30
    assert await harbour.statuses(service) == ["PENDING"]


async def test_what_waits_is_tried_again_when_it_could_be_placed_and_not_before(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=2)
    holder, small = await harbour.submit("holder"), await harbour.submit("small")
    await turns.loop.once()
    large = await harbour.submit("large", cpu=2)
    await turns.loop.once()
    [first] = await harbour.tasks(holder)
    await harbour.move(first, TaskStatus.FAILED)
    await turns.loop.once()
    assert turns.loop.room.tries == 0
    [second] = await harbour.tasks(small)
    await harbour.move(second, TaskStatus.FAILED)
    await turns.loop.once()
    assert turns.loop.room.tries == 1
    assert await harbour.statuses(large) == ["SCHEDULED"]


async def test_the_timer_tries_everything_and_finds_nothing_that_no_change_told_of(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=1)
    await harbour.submit("w", cpu=2)
    await turns.loop.once()
    passes = turns.loop.passes
    await turns.loop.once()
    assert turns.loop.passes == passes
    turns.loop._reconcile_interval = 0
    await turns.loop.once()
    assert turns.loop.passes == passes + 1
    assert turns.loop.room.found_by_timer == 0


async def test_reasons_of_a_flood_are_said_over_several_turns(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=1)
    flood = [await harbour.submit(f"w{number}", cpu=2 + number) for number in range(scheduling._REASONS_A_TURN + 1)]
    assert await turns.loop.once()
    told = [await harbour.workload(workload_id) for workload_id in flood]
    assert sum(bool(workload.reason) for workload in told) == scheduling._REASONS_A_TURN
    assert not await turns.loop.once()
    assert all([(await harbour.workload(workload_id)).reason for workload_id in flood])


async def test_a_reason_is_not_written_again_for_amounts_that_moved(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=4)
    waits = await harbour.submit("waits", cpu=5)
    await turns.loop.once()
    version = (await harbour.workload(waits)).version
    await harbour.submit("other")
    await turns.loop.once()
    assert (await harbour.workload(waits)).version == version


async def test_another_policy_makes_what_waits_in_its_pool_worth_a_try(harbour: Harbour, turns: Turns):
    await harbour.submit("w")
    await turns.loop.once()
    passes = turns.loop.passes
    await PoolAdmin(harbour.database).change("default", PoolChange(profile="pack"))
    await turns.loop.once()
    assert turns.loop.passes == passes + 1


async def test_it_wakes_when_a_booking_begins_or_is_over_if_somebody_waits(harbour: Harbour, turns: Turns):
    await harbour.node("n1", cpu=1)
    await turns.mirror.follow()
    timeline = turns.mirror.cluster.timeline
    timeline.add("lab", 0, seconds_of(now()) + 100, seconds_of(now()) + 200, {"cpu": 1000})
    assert turns.loop.wait_seconds(600) == 600
    await harbour.submit("large", cpu=2)
    await turns.loop.once()
    assert turns.loop.wait_seconds(600) <= 100
    timeline.advance(seconds_of(now()) + 150)
    assert 100 < turns.loop.wait_seconds(600) <= 200
