"""A deployment comes to another template task by task, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock as clock_module
from mooring.binding.binder import Binder
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.controllers.workloads.lifecycle import LifecycleLoop
from mooring.controllers.workloads.rollouts import RolloutsLoop
from mooring.coordination.fenced_database import FencedDatabase
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.workloads.lifetime.rollouts import Phase, Rollout
from mooring.store.commit.status_changes import Change
from mooring.store.core.engine import Connection
from mooring.store.workloads import option_columns, rollouts
from tests.controllers.port import ManualClock
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus


class Yard:
    """A leader, nodes that start what they are given, and a deployment `web`."""

    def __init__(self, harness: Harness, clock: ManualClock) -> None:
        self.harness, self.clock = harness, clock
        self.broken: set[int] = set()
        """Revisions that never get ready."""
        self.bounds: tuple[int, int] | None = None
        """The most tasks that there may be, and the fewest that are ready."""
        self.start_term(harness.leadership)

    def start_term(self, leadership: Leadership) -> None:
        database = self.harness.database
        self.mirror = Mirror(database)
        self.scheduling = SchedulingLoop(self.mirror, Binder(database), leadership, reconcile_interval=1e9)
        self.rollouts = RolloutsLoop(FencedDatabase(database, leadership))
        self.lifecycle = LifecycleLoop(FencedDatabase(database, leadership))

    async def deploy(self, replicas: int = 3, *, cpu: int = 1, **more: Any) -> UUID:
        self.web = await self.harness.submit("web", replicas=replicas, cpu=cpu, **more)
        await self.settle()
        return self.web

    async def update(self, *command: str, **more: Any) -> None:
        await self.harness.update(self.web, *command, **more)

    async def set_phase(self, phase: Phase) -> None:
        async def work(connection: Connection) -> None:
            own = await rollouts.lock(connection, self.web)
            await rollouts.set_phase(connection, own, phase, actor="test", now=self.clock.at)

        await self.harness.database.write(work)

    async def work(self) -> bool:
        """Every loop once, and what the nodes do; whether anything happened."""
        moved = await self.rollouts.once()
        moved |= bool(await self.scheduling.once())
        moved |= await self.nodes()
        moved |= bool(await self.lifecycle.once())
        await self.check()
        return moved

    async def nodes(self) -> bool:
        changes = []
        for task in await self.harness.tasks(self.web, current=False):
            if task.status == T.SCHEDULED:
                changes.append(Change(task.id, T.RUNNING, ready=task.revision not in self.broken))
            elif task.status == T.TERMINATING:
                changes.append(Change(task.id, T.CANCELLED))
        if changes:
            await self.harness.apply(*changes)
        return bool(changes)

    async def settle(self, **later: float) -> None:
        """Let time pass, then everything that it brings about."""
        self.clock.at += timedelta(**later)
        for _ in range(50):
            if not await self.work():
                return
        raise AssertionError("it never comes to rest")

    async def roll(self) -> None:
        """Through all steps, a few seconds each."""
        for _ in range(20):
            if (await self.rollout()).phase is Phase.DONE:
                # What retires last is on its way out.
                await self.settle(seconds=6)
                return
            await self.settle(seconds=6)
        raise AssertionError("it is never done")

    async def check(self) -> None:
        if self.bounds is None:
            return
        most, least = self.bounds
        there = [t for t in await self.harness.tasks(self.web, current=False) if t.status in {*OCCUPYING, T.PENDING}]
        assert len(there) <= most
        assert sum(task.ready_at is not None and task.retires_at is None for task in there) >= least

    async def rollout(self) -> Rollout:
        return option_columns.decode_rollout((await self.harness.workload(self.web)).rollout)

    async def revisions(self) -> Counter[int]:
        """Return the number of current tasks by revision."""
        return Counter(task.revision for task in await self.harness.tasks(self.web))

    async def sound(self) -> None:
        assert await self.harness.findings() == []
        await self.mirror.follow()
        assert await differences(self.mirror, self.harness.database) == []


@pytest.fixture
async def yard(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Yard:
    clock = ManualClock()
    monkeypatch.setattr(clock_module, "source", clock)
    for name in ("n1", "n2"):
        await harness.node(name, cpu=4)
    return Yard(harness, clock)


async def test_a_whole_update_keeps_its_bounds_and_leaves_everything_right(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=3)
    before = [task.id for task in await harness.tasks(yard.web)]
    yard.bounds = (4, 3)
    await yard.update(cpu=2, cause="--cpu 2")
    assert (await harness.workload(yard.web)).status == "RUNNING"
    await yard.roll()
    tasks = await harness.tasks(yard.web)
    assert [(t.revision, t.status, t.requested_slots["cpu"]) for t in tasks] == [(2, "RUNNING", 2000)] * 3
    assert not {task.id for task in tasks} & set(before)
    gone = [await harness.task(id) for id in before]
    assert {(task.status, task.reason["message"]) for task in gone} == {("CANCELLED", "Replaced by revision 2")}
    counters = [await harness.counters(id) for id in {task.node_id for task in tasks}]
    assert [sum(amounts) for amounts in zip(*counters, strict=True)] == [0, 0, 6000]
    workload = await harness.workload(yard.web)
    assert (workload.revision, workload.rolling, workload.requested_slots["cpu"]) == (2, False, 2000)
    kinds = [event.kind for event in await harness.feed(yard.web)]
    assert kinds.index("updated") < kinds.index("rolling") < kinds.index("rolled-out")
    assert [e.kind for e in await harness.feed(before[0])][-3:] == ["retiring", "TERMINATING", "CANCELLED"]
    await yard.sound()


@on_sqlite
async def test_with_one_more_and_one_less_it_goes_step_by_step(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update(surge="1", unavailable="1")
    await yard.rollouts.once()
    # The old one leaves the endpoints first, and is stopped after the drain time.
    assert await yard.revisions() == {1: 2, 2: 1}
    retiring = [t for t in await yard.harness.tasks(yard.web, current=False) if t.retires_at is not None]
    assert [(t.status, t.revision) for t in retiring] == [("RUNNING", 1)]
    assert not await yard.rollouts.once()
    assert yard.rollouts.alarm.wait_seconds(100) == 5
    await yard.settle(seconds=5)
    assert (await yard.harness.task(retiring[0].id)).status == "CANCELLED"
    # As soon as the second is ready the last old one retires; the third starts when there is capacity for it.
    assert await yard.revisions() == {2: 2}
    await yard.settle(seconds=5)
    assert await yard.revisions() == {2: 3}
    assert (await yard.rollout()).phase is Phase.DONE


async def test_a_revision_that_does_not_stay_ready_replaces_nothing(yard: Yard):
    await yard.deploy(replicas=2)
    await yard.update(steady_seconds=30, drain_seconds=0)
    await yard.settle()
    assert await yard.revisions() == {1: 2, 2: 1}
    assert yard.rollouts.alarm.wait_seconds(100) == 30
    [new] = [task for task in await yard.harness.tasks(yard.web) if task.revision == 2]
    # It becomes unready and ready again: its steady time starts over.
    await yard.settle(seconds=29)
    await yard.harness.apply(Change(new.id, T.RUNNING, ready=False))
    await yard.harness.apply(Change(new.id, T.RUNNING, ready=True))
    await yard.settle(seconds=29)
    assert await yard.revisions() == {1: 2, 2: 1}
    await yard.settle(seconds=1)
    assert await yard.revisions() == {1: 1, 2: 2}
    await yard.settle(seconds=29)
    assert (await yard.rollout()).phase is Phase.ROLLING
    await yard.settle(seconds=1)
    assert await yard.revisions() == {2: 2}
    assert (await yard.rollout()).phase is Phase.DONE


async def test_a_node_that_is_lost_in_the_middle_does_not_keep_it_from_its_end(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=4)
    await yard.update()
    await yard.settle()
    lost = next(task.node_id for task in await harness.tasks(yard.web) if task.revision == 1)
    taken = [task.id for task in await harness.tasks(yard.web) if task.node_id == lost]
    await harness.fall_silent(lost, yard.clock.at)
    await harness.apply(*(Change(id, T.LOST, freed=False) for id in taken))
    await yard.roll()
    assert [(t.revision, t.ready_at is None) for t in await harness.tasks(yard.web)] == [(2, False)] * 4
    assert {(await harness.task(id)).status for id in taken} == {"LOST"}
    await yard.sound()


async def test_a_new_leader_continues_the_rollout_of_a_deposed_one(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    first, second = yard.rollouts, Leadership(yard.harness.database, "another")
    await second.begin_term()
    yard.clock.at += timedelta(seconds=6)
    with pytest.raises(LeadershipLost):
        await first.once()
    yard.start_term(second)
    await yard.roll()
    assert await yard.revisions() == {2: 3}
    await yard.sound()


@on_sqlite
async def test_a_revision_that_never_gets_ready_stalls_and_leaves_the_old_tasks_alone(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=3)
    yard.broken, yard.bounds = {2}, (4, 3)
    await yard.update(deadline_seconds=120)
    await yard.settle()
    assert await yard.revisions() == {1: 3, 2: 1}
    assert yard.rollouts.alarm.wait_seconds(1000) == 120
    await yard.settle(seconds=119)
    assert (await yard.rollout()).phase is Phase.ROLLING
    await yard.settle(seconds=1)
    rollout = await yard.rollout()
    assert rollout.phase is Phase.STALLED
    assert "0 of 3 replicas of revision 2 are ready" in (rollout.reason or "")
    assert "mooring rollout undo web" in (rollout.reason or "")
    assert [e.kind for e in await harness.feed(yard.web)][-1] == "stalled"
    await yard.settle(hours=1)
    assert await yard.revisions() == {1: 3, 2: 1}
    # Back: what runs from the same template stays as it is.
    old = {task.id for task in await harness.tasks(yard.web) if task.revision == 1}
    await yard.update("sleep", "60", cause="back to revision 1")
    await yard.roll()
    assert await yard.revisions() == {3: 3}
    assert {task.id for task in await harness.tasks(yard.web)} == old
    await yard.sound()


@pytest.mark.parametrize("cpu", [1, 2, 16])
async def test_a_task_that_fails_during_a_pause_is_replaced_by_one_of_its_own_revision(yard: Yard, cpu: int):
    """Whether the newest revision requests as much, more, or more than any node has."""
    harness = yard.harness
    await yard.deploy(replicas=3)
    yard.broken = {2}
    await yard.update(cpu=cpu, deadline_seconds=120)
    await yard.settle(seconds=120)
    await yard.settle(seconds=120)
    assert (await yard.rollout()).phase is Phase.STALLED
    for phase in (Phase.STALLED, Phase.PAUSED):
        failed = next(task for task in await harness.tasks(yard.web) if task.revision == 1)
        await harness.apply(Change(failed.id, T.FAILED))
        await yard.settle()
        await yard.settle(seconds=60)
        assert await yard.revisions() == {1: 3, 2: 1}
        old = [task for task in await harness.tasks(yard.web) if task.revision == 1]
        served = [(task.ready_at is not None, task.requested_slots["cpu"]) for task in old]
        assert served == [(True, 1000)] * 3
        assert (await yard.rollout()).phase is phase
        await yard.set_phase(Phase.PAUSED)
    if cpu < 16:
        yard.broken = set()
        (new,) = [task for task in await harness.tasks(yard.web) if task.revision == 2]
        await harness.apply(Change(new.id, T.RUNNING, ready=True))
        await yard.set_phase(Phase.ROLLING)
        await yard.roll()
        assert [t.requested_slots["cpu"] for t in await harness.tasks(yard.web)] == [cpu * 1000] * 3
    await yard.sound()


async def test_failures_of_old_tasks_do_not_delay_the_newest_revision(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=2, cpu=4)
    await yard.update(cpu=2)
    await yard.settle(seconds=6)
    # The nodes are full. Where one of the old tasks was, there is capacity for a new one, or for that one again.
    failed, _, new = await harness.tasks(yard.web)
    assert (new.revision, new.status) == (2, "PENDING")
    await harness.apply(Change(failed.id, T.FAILED))
    await yard.roll()
    assert await yard.revisions() == {2: 2}
    await yard.sound()


@on_sqlite
async def test_a_rollout_can_be_paused_and_resumed(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    await yard.set_phase(Phase.PAUSED)
    there = await yard.revisions()
    await yard.settle(hours=1)
    assert await yard.revisions() == there
    # Scaling goes by the number alone meanwhile.
    await yard.harness.scale(yard.web, 5)
    await yard.settle(seconds=6)
    assert (await yard.revisions()).total() == 5
    # Nor does another update begin.
    there = await yard.revisions()
    await yard.update("sleep", "80")
    await yard.settle(hours=1)
    assert await yard.revisions() == there
    await yard.set_phase(Phase.ROLLING)
    await yard.roll()
    assert await yard.revisions() == {3: 5}
    await yard.sound()


@on_sqlite
async def test_pending_tasks_are_replaced_by_the_update(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=3, cpu=4)
    assert await harness.statuses(yard.web) == ["RUNNING", "RUNNING", "PENDING"]
    await yard.update(cpu=1)
    waiting = [t for t in await harness.tasks(yard.web) if t.status == T.PENDING]
    assert [(t.revision, t.attempt, t.requested_slots["cpu"]) for t in waiting] == [(2, 2, 1000)]
    assert [row.requested for slot, row in (await harness.ledger(waiting[0].id)).items() if slot == "cpu"] == [1000]
    await yard.sound()


@on_sqlite
async def test_without_capacity_for_a_surplus_replica_an_old_one_stops_first_if_allowed(yard: Yard):
    await yard.deploy(replicas=2, cpu=4)
    await yard.update(cpu=4)
    await yard.settle(seconds=6)
    assert sorted((t.revision, t.status) for t in await yard.harness.tasks(yard.web)) == [
        (1, "RUNNING"),
        (1, "RUNNING"),
        (2, "PENDING"),
    ]
    yard.bounds = (3, 1)
    await yard.update("sleep", "3", cpu=4, surge="0", unavailable="1")
    await yard.roll()
    assert await yard.revisions() == {3: 2}


@on_sqlite
async def test_scaling_in_the_middle_ends_at_the_new_number(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    await yard.harness.scale(yard.web, 5)
    await yard.settle(seconds=6)
    await yard.harness.scale(yard.web, 2)
    await yard.roll()
    assert await yard.revisions() == {2: 2}
    await yard.sound()


async def test_a_stalled_deployment_scales_up_by_the_working_revision(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=2)
    yard.broken = {2}
    await yard.update(cpu=2, deadline_seconds=60)
    await yard.settle()
    await yard.settle(seconds=60)
    assert (await yard.rollout()).phase is Phase.STALLED
    # There are the two and the broken one: of five, two are to come.
    await harness.scale(yard.web, 5)
    await yard.settle()
    found = Counter((t.revision, t.requested_slots["cpu"], t.status) for t in await harness.tasks(yard.web))
    assert found == {(1, 1000, "RUNNING"): 4, (2, 2000, "RUNNING"): 1}
    await yard.sound()
    yard.broken = set()
    await yard.update("sleep", "3")
    await yard.roll()
    assert await yard.revisions() == {3: 5}
    await yard.sound()


@on_sqlite
async def test_scaling_down_takes_broken_tasks_before_healthy_ones_and_the_newest_of_those(yard: Yard):
    harness = yard.harness
    await yard.deploy(replicas=4)
    oldest = (await harness.tasks(yard.web))[0]
    await harness.apply(Change(oldest.id, T.RUNNING, ready=False))
    await harness.scale(yard.web, 2)
    assert [task.task_index for task in await harness.tasks(yard.web)] == [1, 2]
    # The one without traffic stops at once, the other after its drain time.
    assert (await harness.task(oldest.id)).status == "TERMINATING"
    await yard.settle(seconds=5)
    ended = [t.status for t in await harness.tasks(yard.web, current=False) if not t.current]
    assert ended == ["CANCELLED", "CANCELLED"]
    await yard.sound()


@on_sqlite
async def test_a_deployment_that_is_removed_in_the_middle_ends(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    await yard.harness.stop(yard.web)
    await yard.settle(seconds=6)
    assert (await yard.harness.workload(yard.web)).status == "CANCELLED"
    assert await yard.harness.findings() == []
