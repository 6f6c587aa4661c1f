"""A paused pool: nothing is placed in it by whatever way, those who wait are told, and what runs goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mooring.binding.binder import Binder
from mooring.clock import now
from mooring.controllers.holds import HoldsLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.intake.pools import PoolAdmin
from mooring.intake.questions import Questions
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.pools import Binding
from mooring.store import holds
from mooring.store.pools import by_name
from mooring.store.tables import admin_actions
from mooring.wire.api import WorkloadRequest
from mooring.wire.pools import PoolChange
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus


@pytest.fixture
async def loop(harbour: Harbour) -> AsyncIterator[SchedulingLoop]:
    loop = SchedulingLoop(Mirror(harbour.database), Binder(harbour.database), harbour.office)
    yield loop
    loop.close()


async def pause(harbour: Harbour, reason: str | None = None) -> None:
    await PoolAdmin(harbour.database).pause("default", reason)


async def resume(harbour: Harbour) -> None:
    await PoolAdmin(harbour.database).resume("default")


async def test_nothing_of_a_paused_pool_is_placed_until_it_is_resumed(harbour: Harbour, loop: SchedulingLoop):
    await harbour.node("n1")
    running, waiting = await harbour.submit("running"), await harbour.submit("large", cpu=100)
    await loop.once()
    [task] = await harbour.tasks(running)
    await harbour.move(task, T.RUNNING)
    await pause(harbour, "new cables")
    new = await harbour.submit("new")
    await loop.once()
    assert await harbour.statuses(new) == ["PENDING"]
    for workload in (new, waiting):
        reason = (await harbour.workload(workload)).reason
        assert (reason["code"], reason["cure"]) == ("pool-paused", "change")
        assert reason["message"] == "pool default is paused: new cables"
    # What runs goes on, and is replaced when it ends.
    assert await harbour.statuses(running) == ["RUNNING"]
    await harbour.move(task, T.FAILED)
    await harbour.replace_ended()
    await loop.once()
    assert await harbour.statuses(running) == ["PENDING"]
    await resume(harbour)
    await loop.once()
    assert await harbour.statuses(new) == ["SCHEDULED"]
    assert (await harbour.workload(waiting)).reason["code"] == "insufficient-resources"
    assert loop.room.found_by_timer == 0
    assert await harbour.findings() == []


@pytest.mark.parametrize("mode", Binding)
async def test_what_was_decided_before_the_pause_is_not_bound_after_it(harbour: Harbour, mode: Binding):
    await harbour.node("n1")
    workload = await harbour.submit("w")
    decisions = await harbour.propose()
    await pause(harbour)
    result = await harbour.commit(*decisions, mode=mode)
    assert [why for _, why in result.conflicts] == ["pool default is paused"]
    assert await harbour.statuses(workload) == ["PENDING"]
    await resume(harbour)
    assert len((await harbour.commit(*await harbour.propose(), mode=mode)).bound) == 1


@on_sqlite
async def test_a_place_that_is_kept_is_not_taken_during_a_pause(harbour: Harbour, loop: SchedulingLoop):
    await PoolAdmin(harbour.database).change("default", PoolChange(binding="two_phase"))
    await harbour.node("n1")
    workload = await harbour.submit("w")
    await loop.once()
    [task] = await harbour.tasks(workload)
    await harbour.database.write(lambda c: holds.note_prepared(c, [task.id], now()))
    await pause(harbour)
    settling = HoldsLoop(harbour.database, harbour.office)
    await settling.once()
    assert await harbour.statuses(workload) == ["RESERVED"]
    await resume(harbour)
    await settling.once()
    assert await harbour.statuses(workload) == ["SCHEDULED"]


@on_sqlite
async def test_nobody_has_to_leave_for_work_of_a_paused_pool(harbour: Harbour, loop: SchedulingLoop):
    change = PoolChange.model_validate({"preemption": {"mode": "requeue"}})
    await PoolAdmin(harbour.database).change("default", change)
    await harbour.node("n1", cpu=1)
    humble = await harbour.submit("humble", priority=1)
    await loop.once()
    await harbour.move((await harbour.tasks(humble))[0], T.RUNNING)
    await pause(harbour)
    await harbour.submit("urgent", priority=90)
    await loop.once()
    assert await harbour.statuses(humble) == ["RUNNING"]
    await resume(harbour)
    await loop.once()
    assert await harbour.statuses(humble) == ["TERMINATING"]


@on_sqlite
async def test_questions_say_that_a_pool_is_paused(harbour: Harbour):
    await harbour.node("n1")
    await pause(harbour, "new cables")
    questions = Questions(harbour.database)
    asked = WorkloadRequest.model_validate({"name": "w", "pool": "default", "containers": [{"command": ["true"]}]})
    answer = await questions.dry_run(harbour.principal, asked)
    assert answer.reason is not None
    assert (answer.outcome, answer.reason["message"]) == ("waiting", "pool default is paused: new cables")
    explained = await questions.explain(await harbour.submit("w"))
    assert explained.reason is not None
    assert explained.reason["code"] == "pool-paused"
    [room] = (await questions.free(harbour.principal, "default")).pools
    assert (room.nodes, room.boxes) == (0, [])
    await resume(harbour)
    assert (await questions.dry_run(harbour.principal, asked.model_copy(update={"name": "x"}))).outcome == "placed"


@on_sqlite
async def test_a_pause_is_recorded_once_and_a_revert_does_not_end_it(harbour: Harbour):
    admin = PoolAdmin(harbour.database)
    await admin.change("default", PoolChange(profile="pack"))
    await pause(harbour, "new cables")
    await pause(harbour, "new cables")
    await admin.revert("default", 1)
    async with harbour.database.read() as connection:
        found = await by_name(connection, "default")
    assert found is not None
    policy = found.policy
    assert (policy.profile, policy.paused, policy.paused_reason) == ("locality", True, "new cables")
    await resume(harbour)
    recorded = [row.action for row in await harbour.rows(admin_actions.select().order_by(admin_actions.c.id))]
    assert recorded[-4:] == ["change", "pause", "revert", "resume"]
