"""Tasks that leave a draining or tainted node: their time, and their requeue or end."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.clock import now as really_now
from mooring.controllers.leadership import loops
from mooring.controllers.nodes import draining
from mooring.controllers.nodes.draining import DrainingLoop
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.constraints import (
    Constraints,
    Effect,
    Taint,
    Toleration,
)
from mooring.model.workloads.workload import Kind
from mooring.store.nodes import desired_tasks, drains
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus
SPOT = Taint("spot", effect=Effect.NO_EXECUTE)


class Clock:
    def __init__(self) -> None:
        self.at = really_now()

    def __call__(self) -> datetime:
        return self.at

    def after(self, seconds: float) -> datetime:
        return self.at + timedelta(seconds=seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (draining, loops):
        monkeypatch.setattr(module, "now", clock)
    return clock


@pytest.fixture
def loop(harness: Harness, clock: Clock) -> DrainingLoop:
    return DrainingLoop(harness.fenced)


async def session(harness: Harness, name: str, **more: object) -> UUID:
    """One that runs."""
    workload_id = await harness.submit(name, kind=Kind.SESSION, **more)  # type: ignore[arg-type]
    await harness.run(workload_id)
    return workload_id


async def test_draining_replaces_replicas_and_leaves_sessions_alone(harness: Harness, loop: DrainingLoop):
    node = await harness.node("n1", cpu=2)
    service = await harness.submit("web")
    [replica] = await harness.run(service)
    job = await session(harness, "job")
    other = await harness.node("n2")
    await harness.drain(node)
    await loop.once()
    assert (await harness.task(replica.id)).status == "TERMINATING"
    assert [(t.attempt, t.status) for t in await harness.tasks(service)] == [(2, "PENDING")]
    assert await harness.statuses(job) == ["RUNNING"]
    # Moving once is enough.
    await loop.once()
    assert len(await harness.tasks(service, current=False)) == 2
    await harness.place()
    assert [t.node_id for t in await harness.tasks(service)] == [other]
    assert await harness.findings() == []
    await harness.move(replica, T.CANCELLED)
    await harness.replace_ended()
    assert [t.attempt for t in await harness.tasks(service)] == [2]


async def test_placements_concern_the_loop_only_while_a_node_loses_tasks(harness: Harness, loop: DrainingLoop):
    assert loop.watching
    node = await harness.node("n1")
    await loop.once()
    assert not loop.watching
    await harness.drain(node)
    await loop.once()
    assert loop.watching


async def test_sessions_are_stopped_at_the_timeout_of_a_drain_and_requeued_if_possible(
    harness: Harness, clock: Clock, loop: DrainingLoop
):
    node = await harness.node("n1")
    batch, desk = await session(harness, "batch"), await session(harness, "desk", type="interactive")
    await harness.drain(node, reason="new disks", until=clock.after(60))
    await loop.once()
    assert await harness.statuses(batch) == ["RUNNING"]
    # It is awake in time, not by the timer.
    assert 59 < loop.alarm.wait_seconds(600) <= 60
    clock.at = clock.after(60)
    await loop.once()
    assert [await harness.statuses(each) for each in (batch, desk)] == [["TERMINATING"], ["TERMINATING"]]
    assert (await harness.workload(batch)).status == "PENDING"
    for each in (batch, desk):
        for task in await harness.tasks(each):
            await harness.move(task, T.CANCELLED)
    await harness.replace_ended()
    assert [(t.attempt, t.status, t.failures) for t in await harness.tasks(batch)] == [(2, "PENDING", 0)]
    ended = await harness.workload(desk)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "node-drained")
    assert ended.reason["message"] == "Node n1 is drained: new disks"
    assert await harness.findings() == []


@on_sqlite
async def test_a_task_that_never_started_reports_that_its_node_was_drained(
    harness: Harness, clock: Clock, loop: DrainingLoop
):
    node = await harness.node("n1")
    desk = await harness.submit("desk", kind=Kind.SESSION, type="interactive")
    await harness.place()
    await harness.drain(node, until=clock())
    await loop.once()
    [task] = await harness.tasks(desk)
    await harness.move(task, T.CANCELLED, reason=Reason("never-started", "stopped before it was started", "agent"))
    assert (await harness.workload(desk)).reason["code"] == "node-drained"


@on_sqlite
async def test_a_drain_replaces_a_gang_as_a_whole(harness: Harness, clock: Clock, loop: DrainingLoop):
    node, _ = await harness.node("n1", cpu=1), await harness.node("n2", cpu=1)
    job = await session(harness, "job", replicas=2, gang=True)
    await harness.drain(node, until=clock())
    await loop.once()
    assert await harness.statuses(job) == ["TERMINATING", "TERMINATING"]
    for task in await harness.tasks(job):
        await harness.move(task, T.CANCELLED)
    await harness.replace_ended()
    assert [(t.attempt, t.status) for t in await harness.tasks(job)] == [(2, "PENDING"), (2, "PENDING")]


async def test_replicas_leave_no_faster_than_their_deployment_can_spare_them(
    harness: Harness, clock: Clock, loop: DrainingLoop
):
    node = await harness.node("n1", cpu=3)
    service = await harness.submit("web", replicas=3, min_available=2)
    await harness.run(service)
    await harness.node("n2", cpu=3)
    await harness.drain(node, until=clock.after(60))
    await loop.once()
    await loop.once()
    assert sorted(await harness.statuses(service)) == ["PENDING", "RUNNING", "RUNNING"]
    await harness.place()
    [new] = [task for task in await harness.tasks(service) if task.status == "SCHEDULED"]
    await harness.move(new, T.RUNNING)
    await loop.once()
    assert sorted(await harness.statuses(service)) == ["PENDING", "RUNNING", "RUNNING"]
    # When the time is over, nothing is spared any more.
    clock.at = clock.after(60)
    await loop.once()
    assert sorted(await harness.statuses(service)) == ["PENDING", "PENDING", "RUNNING"]
    assert await harness.findings() == []


@on_sqlite
async def test_a_drain_is_complete_when_nothing_is_left_and_is_said_to_be_so_once(harness: Harness, loop: DrainingLoop):
    node = await harness.node("n1")
    job = await session(harness, "job")
    await harness.drain(node)
    await loop.once()
    assert (await harness.node_row(node)).drained_at is None
    await harness.move((await harness.tasks(job))[0], T.SUCCEEDED)
    await loop.once()
    await loop.once()
    assert (await harness.node_row(node)).drained_at is not None
    assert [row.kind for row in await harness.feed(node)].count("drained") == 1
    assert [row.reason for row in await harness.history(node)][-1] == "Drained: no task is left on it"
    await harness.drain(node, False)
    row = await harness.node_row(node)
    assert (row.status, row.drained_at, row.drain_reason) == ("READY", None, None)


@on_sqlite
async def test_a_node_that_is_resumed_in_time_ends_nothing(harness: Harness, clock: Clock, loop: DrainingLoop):
    node = await harness.node("n1")
    job = await session(harness, "job")
    await harness.drain(node, until=clock.after(60))
    await loop.once()
    await harness.drain(node, False)
    clock.at = clock.after(120)
    await loop.once()
    assert await harness.statuses(job) == ["RUNNING"]


@on_sqlite
async def test_sessions_are_warned_of_a_drain_that_will_end_them(harness: Harness, clock: Clock):
    node = await harness.node("n1")
    asked = await harness.set(await session(harness, "asked"), warning_signal="USR1", warning_seconds=30)
    until = clock.after(600)
    await harness.drain(node, until=until)
    await harness.database.write(lambda c: drains.warn_sessions(c, node, until, "new disks", actor="ada", now=clock()))
    [task] = await harness.tasks(asked)
    [warned] = [event for event in await harness.feed(task.id) if event.kind == "warned"]
    assert warned.details["until"] == until.isoformat(timespec="seconds")
    said = (await harness.history(asked))[-1]
    assert (said.actor, said.old_status, said.new_status) == ("ada", "RUNNING", "RUNNING")
    assert "new disks; remaining work is stopped at" in said.reason
    async with harness.database.read() as connection:
        [desired] = await desired_tasks.desired(connection, node)
    assert desired.deadline_at == until


async def test_a_taint_evicts_tasks_without_a_toleration(harness: Harness, clock: Clock, loop: DrainingLoop):
    node = await harness.node("n1")
    service = await harness.submit("web")
    [replica] = await harness.run(service)
    tolerant = await session(harness, "tolerant", constraints=Constraints(tolerations=(Toleration("spot", True),)))
    batch = await session(harness, "batch")
    await harness.taint(node, SPOT)
    clock.at = really_now()
    await loop.once()
    assert (await harness.task(replica.id)).reason["message"] == "Node n1 has the taint spot:NoExecute"
    assert await harness.statuses(service) == ["PENDING"]
    assert [await harness.statuses(each) for each in (tolerant, batch)] == [["RUNNING"], ["TERMINATING"]]
    assert (await harness.workload(batch)).status == "PENDING"
    assert await harness.findings() == []


@on_sqlite
@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([Toleration("spot", True, effect=Effect.NO_EXECUTE, seconds=60)], 60),
        # Of several that match, the one with the fewest seconds counts.
        (
            [
                Toleration("spot", True, effect=Effect.NO_EXECUTE, seconds=90),
                Toleration(exists=True, effect=Effect.NO_EXECUTE, seconds=30),
                Toleration("spot", True),
            ],
            30,
        ),
    ],
)
async def test_a_toleration_with_seconds_keeps_a_task_for_so_long(
    harness: Harness, clock: Clock, loop: DrainingLoop, tolerations: list[Toleration], seconds: int
):
    node = await harness.node("n1")
    job = await session(harness, "job", constraints=Constraints(tolerations=tuple(tolerations)))
    clock.at = really_now()
    await harness.taint(node, SPOT, at=clock())
    # A change of another taint does not restart the time.
    clock.at = clock.after(seconds - 1)
    await harness.taint(node, Taint("old"), SPOT, at=clock())
    await loop.once()
    assert await harness.statuses(job) == ["RUNNING"]
    assert loop.alarm.wait_seconds(600) <= 1
    clock.at = clock.after(1)
    await loop.once()
    assert await harness.statuses(job) == ["TERMINATING"]


@on_sqlite
async def test_other_taints_evict_nothing(harness: Harness, loop: DrainingLoop):
    node = await harness.node("n1")
    job = await session(harness, "job")
    await harness.taint(node, Taint("NoExecute"), Taint("b", effect=Effect.PREFER_NO_SCHEDULE))
    await loop.once()
    assert await harness.statuses(job) == ["RUNNING"]
