"""What leaves a draining or a tainted node, when, and what becomes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from mooring.clock import now as really_now
from mooring.controllers import draining, loops
from mooring.controllers.draining import DrainingLoop
from mooring.model.constraints import Constraints, Effect, Taint, Toleration
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads import Kind
from mooring.store import agents, drains
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

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
def loop(harbour: Harbour, clock: Clock) -> DrainingLoop:
    return DrainingLoop(harbour.database, harbour.office)


async def session(harbour: Harbour, name: str, **more: object) -> UUID:
    """One that runs."""
    workload_id = await harbour.submit(name, kind=Kind.SESSION, **more)  # type: ignore[arg-type]
    await harbour.run(workload_id)
    return workload_id


async def test_draining_moves_replicas_and_leaves_sessions(harbour: Harbour, loop: DrainingLoop):
    node = await harbour.node("n1", cpu=2)
    service = await harbour.submit("web")
    [replica] = await harbour.run(service)
    job = await session(harbour, "job")
    other = await harbour.node("n2")
    await harbour.drain(node)
    await loop.once()
    assert (await harbour.task(replica.id)).status == "TERMINATING"
    assert [(t.attempt, t.status) for t in await harbour.tasks(service)] == [(2, "PENDING")]
    assert await harbour.statuses(job) == ["RUNNING"]
    # Moving once is enough.
    await loop.once()
    assert len(await harbour.tasks(service, current=False)) == 2
    await harbour.place()
    assert [t.node_id for t in await harbour.tasks(service)] == [other]
    assert await harbour.findings() == []
    await harbour.move(replica, T.CANCELLED)
    await harbour.replace_ended()
    assert [t.attempt for t in await harbour.tasks(service)] == [2]


async def test_sessions_end_when_the_time_of_a_drain_is_over_and_go_on_elsewhere_if_they_can(
    harbour: Harbour, clock: Clock, loop: DrainingLoop
):
    node = await harbour.node("n1")
    batch, desk = await session(harbour, "batch"), await session(harbour, "desk", type="interactive")
    await harbour.drain(node, reason="new disks", until=clock.after(60))
    await loop.once()
    assert await harbour.statuses(batch) == ["RUNNING"]
    # It is awake in time, not by the timer.
    assert 59 < loop.alarm.wait_seconds(600) <= 60
    clock.at = clock.after(60)
    await loop.once()
    assert [await harbour.statuses(each) for each in (batch, desk)] == [["TERMINATING"], ["TERMINATING"]]
    assert (await harbour.workload(batch)).status == "PENDING"
    for each in (batch, desk):
        for task in await harbour.tasks(each):
            await harbour.move(task, T.CANCELLED)
    await harbour.replace_ended()
    assert [(t.attempt, t.status, t.failures) for t in await harbour.tasks(batch)] == [(2, "PENDING", 0)]
    ended = await harbour.workload(desk)
    assert (ended.status, ended.reason["code"]) == ("CANCELLED", "node-drained")
    assert ended.reason["message"] == "Node n1 is drained: new disks"
    assert await harbour.findings() == []


@on_sqlite
async def test_what_never_started_there_still_says_that_the_node_was_drained(
    harbour: Harbour, clock: Clock, loop: DrainingLoop
):
    node = await harbour.node("n1")
    desk = await harbour.submit("desk", kind=Kind.SESSION, type="interactive")
    await harbour.place()
    await harbour.drain(node, until=clock())
    await loop.once()
    [task] = await harbour.tasks(desk)
    await harbour.move(task, T.CANCELLED, reason=Reason("never-started", "stopped before it was started", "agent"))
    assert (await harbour.workload(desk)).reason["code"] == "node-drained"


@on_sqlite
async def test_those_who_work_together_leave_together(harbour: Harbour, clock: Clock, loop: DrainingLoop):
    node, _ = await harbour.node("n1", cpu=1), await harbour.node("n2", cpu=1)
    job = await session(harbour, "job", replicas=2, gang=True)
    await harbour.drain(node, until=clock())
    await loop.once()
    assert await harbour.statuses(job) == ["TERMINATING", "TERMINATING"]
    for task in await harbour.tasks(job):
        await harbour.move(task, T.CANCELLED)
    await harbour.replace_ended()
    assert [(t.attempt, t.status) for t in await harbour.tasks(job)] == [(2, "PENDING"), (2, "PENDING")]


async def test_replicas_leave_no_faster_than_their_deployment_can_spare_them(
    harbour: Harbour, clock: Clock, loop: DrainingLoop
):
    node = await harbour.node("n1", cpu=3)
    service = await harbour.submit("web", replicas=3, min_available=2)
    await harbour.run(service)
    await harbour.node("n2", cpu=3)
    await harbour.drain(node, until=clock.after(60))
    await loop.once()
    await loop.once()
    assert sorted(await harbour.statuses(service)) == ["PENDING", "RUNNING", "RUNNING"]
    await harbour.place()
    [new] = [task for task in await harbour.tasks(service) if task.status == "SCHEDULED"]
    await harbour.move(new, T.RUNNING)
    await loop.once()
    assert sorted(await harbour.statuses(service)) == ["PENDING", "RUNNING", "RUNNING"]
    # When the time is over, nothing is spared any more.
    clock.at = clock.after(60)
    await loop.once()
    assert sorted(await harbour.statuses(service)) == ["PENDING", "PENDING", "RUNNING"]
    assert await harbour.findings() == []


@on_sqlite
async def test_a_drain_is_complete_when_nothing_is_left_and_is_said_to_be_so_once(harbour: Harbour, loop: DrainingLoop):
    node = await harbour.node("n1")
    job = await session(harbour, "job")
    await harbour.drain(node)
    await loop.once()
    assert (await harbour.node_row(node)).drained_at is None
    await harbour.move((await harbour.tasks(job))[0], T.SUCCEEDED)
    await loop.once()
    await loop.once()
    assert (await harbour.node_row(node)).drained_at is not None
    assert [row.kind for row in await harbour.feed(node)].count("drained") == 1
    assert [row.reason for row in await harbour.history(node)][-1] == "Drained: nothing is left on it"
    await harbour.drain(node, False)
    row = await harbour.node_row(node)
    assert (row.status, row.drained_at, row.drain_reason) == ("READY", None, None)


@on_sqlite
async def test_a_node_that_is_resumed_in_time_ends_nothing(harbour: Harbour, clock: Clock, loop: DrainingLoop):
    node = await harbour.node("n1")
    job = await session(harbour, "job")
    await harbour.drain(node, until=clock.after(60))
    await loop.once()
    await harbour.drain(node, False)
    clock.at = clock.after(120)
    await loop.once()
    assert await harbour.statuses(job) == ["RUNNING"]


@on_sqlite
async def test_sessions_are_warned_of_a_drain_that_will_end_them(harbour: Harbour, clock: Clock):
    node = await harbour.node("n1")
    asked = await harbour.set(await session(harbour, "asked"), warning_signal="USR1", warning_seconds=30)
    until = clock.after(600)
    await harbour.drain(node, until=until)
    await harbour.database.write(lambda c: drains.warn(c, node, until, "new disks", actor="ada", now=clock()))
    [task] = await harbour.tasks(asked)
    [warned] = [event for event in await harbour.feed(task.id) if event.kind == "warned"]
    assert warned.details["until"] == until.isoformat(timespec="seconds")
    said = (await harbour.history(asked))[-1]
    assert (said.actor, said.old_status, said.new_status) == ("ada", "RUNNING", "RUNNING")
    assert "new disks; what is not done ends at" in said.reason
    async with harbour.database.read() as connection:
        [desired] = await agents.desired(connection, node)
    assert desired.deadline_at == until


async def test_a_taint_evicts_what_does_not_tolerate_it(harbour: Harbour, clock: Clock, loop: DrainingLoop):
    node = await harbour.node("n1")
    service = await harbour.submit("web")
    [replica] = await harbour.run(service)
    tolerant = await session(harbour, "tolerant", constraints=Constraints(tolerations=(Toleration("spot", True),)))
    batch = await session(harbour, "batch")
    await harbour.taint(node, SPOT)
    clock.at = really_now()
    await loop.once()
    assert (await harbour.task(replica.id)).reason["message"] == "Node n1 has the taint spot:NoExecute"
    assert await harbour.statuses(service) == ["PENDING"]
    assert [await harbour.statuses(each) for each in (tolerant, batch)] == [["RUNNING"], ["TERMINATING"]]
    assert (await harbour.workload(batch)).status == "PENDING"
    assert await harbour.findings() == []


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
    harbour: Harbour, clock: Clock, loop: DrainingLoop, tolerations: list[Toleration], seconds: int
):
    node = await harbour.node("n1")
    job = await session(harbour, "job", constraints=Constraints(tolerations=tuple(tolerations)))
    clock.at = really_now()
    await harbour.taint(node, SPOT, at=clock())
    # A change of another taint does not start the time anew.
    clock.at = clock.after(seconds - 1)
    await harbour.taint(node, Taint("old"), SPOT, at=clock())
    await loop.once()
    assert await harbour.statuses(job) == ["RUNNING"]
    assert loop.alarm.wait_seconds(600) <= 1
    clock.at = clock.after(1)
    await loop.once()
    assert await harbour.statuses(job) == ["TERMINATING"]


@on_sqlite
async def test_other_taints_evict_nothing(harbour: Harbour, loop: DrainingLoop):
    node = await harbour.node("n1")
    job = await session(harbour, "job")
    await harbour.taint(node, Taint("NoExecute"), Taint("b", effect=Effect.PREFER_NO_SCHEDULE))
    await loop.once()
    assert await harbour.statuses(job) == ["RUNNING"]
