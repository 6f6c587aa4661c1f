"""A paused pool: nothing is placed in it, pending work shows the reason, and running work continues."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.scheduling.holds import HoldsLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.policy.pools import Binding
from mooring.services.administration.pools import PoolAdmin
from mooring.services.queries.queries import Queries
from mooring.store.commit import holds
from mooring.store.nodes.pools import by_name
from mooring.store.tables import admin_actions
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus


@pytest.fixture
async def loop(harness: Harness) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
    yield loop
    loop.close()


async def pause(harness: Harness, reason: str | None = None) -> None:
    await PoolAdmin(harness.database).pause("default", reason)


async def resume(harness: Harness) -> None:
    await PoolAdmin(harness.database).resume("default")


async def test_nothing_of_a_paused_pool_is_placed_until_it_is_resumed(harness: Harness, loop: SchedulingLoop):
    await harness.node("n1")
    running, waiting = await harness.submit("running"), await harness.submit("large", cpu=100)
    await loop.once()
    [task] = await harness.tasks(running)
    await harness.move(task, T.RUNNING)
    await pause(harness, "new cables")
    new = await harness.submit("new")
    await loop.once()
    assert await harness.statuses(new) == ["PENDING"]
    for workload in (new, waiting):
        reason = (await harness.workload(workload)).reason
        assert (reason["code"], reason["cure"]) == ("pool-paused", "change")
        assert reason["message"] == "pool default is paused: new cables"
    # Running work continues, and is replaced when it ends.
    assert await harness.statuses(running) == ["RUNNING"]
    await harness.move(task, T.FAILED)
    await harness.replace_ended()
    await loop.once()
    assert await harness.statuses(running) == ["PENDING"]
    await resume(harness)
    await loop.once()
    assert await harness.statuses(new) == ["SCHEDULED"]
    assert (await harness.workload(waiting)).reason["code"] == "insufficient-resources"
    assert loop.pending_queue.found_by_timer == 0
    assert await harness.findings() == []


@pytest.mark.parametrize("mode", Binding)
async def test_decisions_from_before_a_pause_are_not_bound_after_it(harness: Harness, mode: Binding):
    await harness.node("n1")
    workload = await harness.submit("w")
    decisions = await harness.propose()
    await pause(harness)
    result = await harness.commit(*decisions, mode=mode)
    assert [why for _, why in result.conflicts] == ["pool default is paused"]
    assert await harness.statuses(workload) == ["PENDING"]
    await resume(harness)
    assert len((await harness.commit(*await harness.propose(), mode=mode)).bound) == 1


@on_sqlite
async def test_held_capacity_is_not_taken_during_a_pause(harness: Harness, loop: SchedulingLoop):
    await PoolAdmin(harness.database).change("default", PoolChange(binding="two_phase"))
    await harness.node("n1")
    workload = await harness.submit("w")
    await loop.once()
    [task] = await harness.tasks(workload)
    await harness.database.write(lambda c: holds.mark_prepared(c, [task.id], now()))
    await pause(harness)
    settling = HoldsLoop(harness.fenced)
    await settling.once()
    assert await harness.statuses(workload) == ["RESERVED"]
    await resume(harness)
    await settling.once()
    assert await harness.statuses(workload) == ["SCHEDULED"]


@on_sqlite
async def test_work_of_a_paused_pool_preempts_nothing(harness: Harness, loop: SchedulingLoop):
    change = PoolChange.model_validate({"preemption": {"mode": "requeue"}})
    await PoolAdmin(harness.database).change("default", change)
    await harness.node("n1", cpu=1)
    humble = await harness.submit("humble", priority=1)
    await loop.once()
    await harness.move((await harness.tasks(humble))[0], T.RUNNING)
    await pause(harness)
    await harness.submit("urgent", priority=90)
    await loop.once()
    assert await harness.statuses(humble) == ["RUNNING"]
    await resume(harness)
    await loop.once()
    assert await harness.statuses(humble) == ["TERMINATING"]


@on_sqlite
async def test_dry_runs_report_that_a_pool_is_paused(harness: Harness):
    await harness.node("n1")
    await pause(harness, "new cables")
    queries = Queries(harness.database)
    asked = WorkloadRequest.model_validate({"name": "w", "pool": "default", "containers": [{"command": ["true"]}]})
    answer = await queries.dry_run(harness.principal, asked)
    assert answer.reason is not None
    assert (answer.outcome, answer.reason["message"]) == ("waiting", "pool default is paused: new cables")
    explained = await queries.explain(await harness.submit("w"))
    assert explained.reason is not None
    assert explained.reason["code"] == "pool-paused"
    [capacity] = (await queries.free(harness.principal, "default")).pools
    assert (capacity.nodes, capacity.boxes) == (0, [])
    await resume(harness)
    assert (await queries.dry_run(harness.principal, asked.model_copy(update={"name": "x"}))).outcome == "placed"


@on_sqlite
async def test_a_pause_is_recorded_once_and_a_revert_does_not_end_it(harness: Harness):
    admin = PoolAdmin(harness.database)
    await admin.change("default", PoolChange(profile="pack"))
    await pause(harness, "new cables")
    await pause(harness, "new cables")
    await admin.revert("default", 1)
    async with harness.database.read() as connection:
        found = await by_name(connection, "default")
    assert found is not None
    policy = found.policy
    assert (policy.profile, policy.paused, policy.paused_reason) == ("auto", True, "new cables")
    await resume(harness)
    recorded = [row.action for row in await harness.rows(admin_actions.select().order_by(admin_actions.c.id))]
    assert recorded[-4:] == ["change", "pause", "revert", "resume"]
