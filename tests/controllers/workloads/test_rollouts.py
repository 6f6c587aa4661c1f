"""A deployment comes to another template task by task, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock as clock_module
from mooring.binding.binder import Binder
from mooring.controllers.lifecycle import LifecycleLoop
from mooring.controllers.rollouts import RolloutsLoop
from mooring.controllers.scheduling import SchedulingLoop
from mooring.coordination.leadership import Office
from mooring.mirror.mirror import Mirror
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import OCCUPYING, TaskStatus
from mooring.model.rollouts import Phase, Rollout
from mooring.store import rollout_states, rollouts
from mooring.store.changes import Change
from mooring.store.engine import Connection
from tests.controllers.port import StandingClock
from tests.mirror.compare import differences
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus


class Yard:
    """A leader, nodes that start what they are given, and a deployment `web`."""

    def __init__(self, harbour: Harbour, clock: StandingClock) -> None:
        self.harbour, self.clock = harbour, clock
        self.broken: set[int] = set()
        """Revisions that never get ready."""
        self.bounds: tuple[int, int] | None = None
        """The most tasks that there may be, and the fewest that are ready."""
        self.take_office(harbour.office)

    def take_office(self, office: Office) -> None:
        database = self.harbour.database
        self.mirror = Mirror(database)
        self.scheduling = SchedulingLoop(self.mirror, Binder(database), office, reconcile_interval=1e9)
        self.rollouts = RolloutsLoop(database, office)
        self.lifecycle = LifecycleLoop(database, office)

    async def deploy(self, replicas: int = 3, *, cpu: int = 1, **more: Any) -> UUID:
        self.web = await self.harbour.submit("web", replicas=replicas, cpu=cpu, **more)
        await self.settle()
        return self.web

    async def update(self, *command: str, **more: Any) -> None:
        await self.harbour.update(self.web, *command, **more)

    async def set_phase(self, phase: Phase) -> None:
        async def work(connection: Connection) -> None:
            own = await rollouts.lock(connection, self.web)
            await rollouts.set_phase(connection, own, phase, actor="test", now=self.clock.at)

        await self.harbour.database.write(work)

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
        for task in await self.harbour.tasks(self.web, current=False):
            if task.status == T.SCHEDULED:
                changes.append(Change(task.id, T.RUNNING, ready=task.revision not in self.broken))
            elif task.status == T.TERMINATING:
                changes.append(Change(task.id, T.CANCELLED))
        if changes:
            await self.harbour.apply(*changes)
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
        there = [t for t in await self.harbour.tasks(self.web, current=False) if t.status in {*OCCUPYING, T.PENDING}]
        assert len(there) <= most
        assert sum(task.ready_at is not None and task.retires_at is None for task in there) >= least

    async def rollout(self) -> Rollout:
        return rollout_states.decode((await self.harbour.workload(self.web)).rollout)

    async def revisions(self) -> Counter[int]:
        """How many of its current tasks are of which revision."""
        return Counter(task.revision for task in await self.harbour.tasks(self.web))

    async def sound(self) -> None:
        assert await self.harbour.findings() == []
        await self.mirror.follow()
        assert await differences(self.mirror, self.harbour.database) == []


@pytest.fixture
async def yard(harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Yard:
    clock = StandingClock()
    monkeypatch.setattr(clock_module, "source", clock)
    for name in ("n1", "n2"):
        await harbour.node(name, cpu=4)
    return Yard(harbour, clock)


async def test_a_whole_update_keeps_its_bounds_and_leaves_everything_right(yard: Yard):
    harbour = yard.harbour
    await yard.deploy(replicas=3)
    before = [task.id for task in await harbour.tasks(yard.web)]
    yard.bounds = (4, 3)
    await yard.update(cpu=2, cause="--cpu 2")
    assert (await harbour.workload(yard.web)).status == "RUNNING"
    await yard.roll()
    tasks = await harbour.tasks(yard.web)
    assert [(t.revision, t.status, t.requested_slots["cpu"]) for t in tasks] == [(2, "RUNNING", 2000)] * 3
    assert not {task.id for task in tasks} & set(before)
    gone = [await harbour.task(id) for id in before]
    assert {(task.status, task.reason["message"]) for task in gone} == {("CANCELLED", "Replaced by revision 2")}
    counters = [await harbour.counters(id) for id in {task.node_id for task in tasks}]
    assert [sum(amounts) for amounts in zip(*counters, strict=True)] == [0, 0, 6000]
    workload = await harbour.workload(yard.web)
    assert (workload.revision, workload.rolling, workload.requested_slots["cpu"]) == (2, False, 2000)
    kinds = [event.kind for event in await harbour.feed(yard.web)]
    assert kinds.index("updated") < kinds.index("rolling") < kinds.index("rolled-out")
    assert [e.kind for e in await harbour.feed(before[0])][-3:] == ["retiring", "TERMINATING", "CANCELLED"]
    await yard.sound()


@on_sqlite
async def test_with_one_more_and_one_less_it_goes_step_by_step(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update(surge="1", unavailable="1")
    await yard.rollouts.once()
    # The old one leaves the endpoints first, and is stopped when nobody is sent to it any more.
    assert await yard.revisions() == {1: 2, 2: 1}
    retiring = [t for t in await yard.harbour.tasks(yard.web, current=False) if t.retires_at is not None]
    assert [(t.status, t.revision) for t in retiring] == [("RUNNING", 1)]
    assert not await yard.rollouts.once()
    assert yard.rollouts.alarm.wait_seconds(100) == 5
    await yard.settle(seconds=5)
    assert (await yard.harbour.task(retiring[0].id)).status == "CANCELLED"
    # As soon as the second is ready the last old one retires; the third comes when there is room for it.
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
    [new] = [task for task in await yard.harbour.tasks(yard.web) if task.revision == 2]
    # It breaks and comes back: its time begins anew.
    await yard.settle(seconds=29)
    await yard.harbour.apply(Change(new.id, T.RUNNING, ready=False))
    await yard.harbour.apply(Change(new.id, T.RUNNING, ready=True))
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
    harbour = yard.harbour
    await yard.deploy(replicas=4)
    await yard.update()
    await yard.settle()
    lost = next(task.node_id for task in await harbour.tasks(yard.web) if task.revision == 1)
    taken = [task.id for task in await harbour.tasks(yard.web) if task.node_id == lost]
    await harbour.fall_silent(lost, yard.clock.at)
    await harbour.apply(*(Change(id, T.LOST, freed=False) for id in taken))
    await yard.roll()
    assert [(t.revision, t.ready_at is None) for t in await harbour.tasks(yard.web)] == [(2, False)] * 4
    assert {(await harbour.task(id)).status for id in taken} == {"LOST"}
    await yard.sound()


async def test_another_leader_goes_on_where_the_first_was_deposed(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    first, second = yard.rollouts, Office(yard.harbour.database, "another")
    await second.take()
    yard.clock.at += timedelta(seconds=6)
    with pytest.raises(LeadershipLost):
        await first.once()
    yard.take_office(second)
    await yard.roll()
    assert await yard.revisions() == {2: 3}
    await yard.sound()


@on_sqlite
async def test_a_revision_that_never_gets_ready_stalls_and_leaves_the_old_tasks_alone(yard: Yard):
    harbour = yard.harbour
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
    assert [e.kind for e in await harbour.feed(yard.web)][-1] == "stalled"
    await yard.settle(hours=1)
    assert await yard.revisions() == {1: 3, 2: 1}
    # Back: what runs from the same template stays as it is.
    old = {task.id for task in await harbour.tasks(yard.web) if task.revision == 1}
    await yard.update("sleep", "60", cause="back to revision 1")
    await yard.roll()
    assert await yard.revisions() == {3: 3}
    assert {task.id for task in await harbour.tasks(yard.web)} == old
    await yard.sound()


@pytest.mark.parametrize("cpu", [1, 2, 16])
async def test_what_fails_while_a_rollout_rests_comes_again_as_it_was(yard: Yard, cpu: int):
    """Whether the newest revision asks for as much, for more, or for so much that it waits for ever."""
    harbour = yard.harbour
    await yard.deploy(replicas=3)
    yard.broken = {2}
    await yard.update(cpu=cpu, deadline_seconds=120)
    await yard.settle(seconds=120)
    await yard.settle(seconds=120)
    assert (await yard.rollout()).phase is Phase.STALLED
    for phase in (Phase.STALLED, Phase.PAUSED):
        failed = next(task for task in await harbour.tasks(yard.web) if task.revision == 1)
        await harbour.apply(Change(failed.id, T.FAILED))
        await yard.settle()
        await yard.settle(seconds=60)
        assert await yard.revisions() == {1: 3, 2: 1}
        old = [task for task in await harbour.tasks(yard.web) if task.revision == 1]
        served = [(task.ready_at is not None, task.requested_slots["cpu"]) for task in old]
        assert served == [(True, 1000)] * 3
        assert (await yard.rollout()).phase is phase
        await yard.set_phase(Phase.PAUSED)
    if cpu < 16:
        yard.broken = set()
        (new,) = [task for task in await harbour.tasks(yard.web) if task.revision == 2]
        await harbour.apply(Change(new.id, T.RUNNING, ready=True))
        await yard.set_phase(Phase.ROLLING)
        await yard.roll()
        assert [t.requested_slots["cpu"] for t in await harbour.tasks(yard.web)] == [cpu * 1000] * 3
    await yard.sound()


async def test_what_fails_while_tasks_are_replaced_does_not_hold_up_the_newest_revision(yard: Yard):
    harbour = yard.harbour
    await yard.deploy(replicas=2, cpu=4)
    await yard.update(cpu=2)
    await yard.settle(seconds=6)
    # The nodes are full. Where one of the old tasks was, there is room for a new one, or for that one again.
    failed, _, new = await harbour.tasks(yard.web)
    assert (new.revision, new.status) == (2, "PENDING")
    await harbour.apply(Change(failed.id, T.FAILED))
    await yard.roll()
    assert await yard.revisions() == {2: 2}
    await yard.sound()


@on_sqlite
async def test_a_pause_rests_and_going_on_goes_on(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    await yard.set_phase(Phase.PAUSED)
    there = await yard.revisions()
    await yard.settle(hours=1)
    assert await yard.revisions() == there
    # Scaling goes by the number alone meanwhile.
    await yard.harbour.scale(yard.web, 5)
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
async def test_what_waits_is_made_anew_with_the_update(yard: Yard):
    harbour = yard.harbour
    await yard.deploy(replicas=3, cpu=4)
    assert await harbour.statuses(yard.web) == ["RUNNING", "RUNNING", "PENDING"]
    await yard.update(cpu=1)
    waiting = [t for t in await harbour.tasks(yard.web) if t.status == T.PENDING]
    assert [(t.revision, t.attempt, t.requested_slots["cpu"]) for t in waiting] == [(2, 2, 1000)]
    assert [row.requested for slot, row in (await harbour.ledger(waiting[0].id)).items() if slot == "cpu"] == [1000]
    await yard.sound()


@on_sqlite
async def test_without_room_for_one_more_one_leaves_first_if_that_is_allowed(yard: Yard):
    await yard.deploy(replicas=2, cpu=4)
    await yard.update(cpu=4)
    await yard.settle(seconds=6)
    assert sorted((t.revision, t.status) for t in await yard.harbour.tasks(yard.web)) == [
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
    await yard.harbour.scale(yard.web, 5)
    await yard.settle(seconds=6)
    await yard.harbour.scale(yard.web, 2)
    await yard.roll()
    assert await yard.revisions() == {2: 2}
    await yard.sound()


async def test_a_deployment_whose_update_stalled_grows_by_what_works(yard: Yard):
    harbour = yard.harbour
    await yard.deploy(replicas=2)
    yard.broken = {2}
    await yard.update(cpu=2, deadline_seconds=60)
    await yard.settle()
    await yard.settle(seconds=60)
    assert (await yard.rollout()).phase is Phase.STALLED
    # There are the two and the broken one: of five, two are to come.
    await harbour.scale(yard.web, 5)
    await yard.settle()
    found = Counter((t.revision, t.requested_slots["cpu"], t.status) for t in await harbour.tasks(yard.web))
    assert found == {(1, 1000, "RUNNING"): 4, (2, 2000, "RUNNING"): 1}
    await yard.sound()
    yard.broken = set()
    await yard.update("sleep", "3")
    await yard.roll()
    assert await yard.revisions() == {3: 5}
    await yard.sound()


@on_sqlite
async def test_scaling_down_takes_broken_tasks_before_healthy_ones_and_the_newest_of_those(yard: Yard):
    harbour = yard.harbour
    await yard.deploy(replicas=4)
    oldest = (await harbour.tasks(yard.web))[0]
    await harbour.apply(Change(oldest.id, T.RUNNING, ready=False))
    await harbour.scale(yard.web, 2)
    assert [task.task_index for task in await harbour.tasks(yard.web)] == [1, 2]
    # What nobody is sent to stops at once, the other when it had time to finish.
    assert (await harbour.task(oldest.id)).status == "TERMINATING"
    await yard.settle(seconds=5)
    ended = [t.status for t in await harbour.tasks(yard.web, current=False) if not t.current]
    assert ended == ["CANCELLED", "CANCELLED"]
    await yard.sound()


@on_sqlite
async def test_a_deployment_that_is_removed_in_the_middle_ends(yard: Yard):
    await yard.deploy(replicas=3)
    await yard.update()
    await yard.settle()
    await yard.harbour.stop(yard.web)
    await yard.settle(seconds=6)
    assert (await yard.harbour.workload(yard.web)).status == "CANCELLED"
    assert await yard.harbour.findings() == []
