"""Automatic defragmentation: the budget of moves, the execution of a plan, and its end when reality departs from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock
from mooring.binding.binder import Binder
from mooring.controllers.nodes.defragmentation import DefragmentationLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.mirror.mirror import Mirror
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import TaskStatus as T
from mooring.model.policy.defragmentation import MoveStatus, PlanStatus
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Kind
from mooring.store.core.engine import Connection
from mooring.store.nodes import defragmentation_plans
from mooring.store.nodes.defragmentation_plans import StoredPlan
from mooring.store.tenancy import quotas
from mooring.store.tenancy.quotas import QuotaChange
from tests.store.databases import on_sqlite
from tests.store.harness import Harness


class Clock:
    def __init__(self) -> None:
        self.at = datetime(2026, 5, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class World:
    """A leader; its nodes have 4 GPUs each, and its agents do at once what they are told."""

    def __init__(self, harness: Harness, time: Clock) -> None:
        self.harness = harness
        self.time = time
        self.scheduling = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
        self.loop = self.new_loop()

    def new_loop(self) -> DefragmentationLoop:
        """The loop of a new leader."""
        return DefragmentationLoop(self.harness.fenced, self.scheduling)

    async def rules(self, **rules: Any) -> None:
        await self.harness.set_options(defragmentation=rules)

    async def place(self) -> None:
        while await self.scheduling.once():
            pass

    async def iterate(self, *, agents: bool = True) -> None:
        await self.place()
        await self.loop.once()
        await self.place()
        if agents:
            await self.work_off()

    async def work_off(self) -> None:
        """Agents end the tasks that are to end and start those that are scheduled; placements follow."""
        for row in await self.harness.rows(_tasks()):
            if row.status == T.TERMINATING:
                await self.harness.move(row.id, T.CANCELLED)
        await self.harness.replace_ended()
        await self.place()
        for row in await self.harness.rows(_tasks()):
            if row.status == T.SCHEDULED:
                await self.harness.move(row.id, T.PREPARING, T.RUNNING)

    async def session(
        self, name: str, gpus: int, node: str | None = None, *, preemptible: bool = True, **more: Any
    ) -> UUID:
        """Submit batch work, which runs on a node if one is given."""
        if node is not None:
            more["constraints"] = Constraints(designated=frozenset({node}))
        workload_id = await self.harness.submit(name, kind=Kind.SESSION, cpu=1, slots={"gpu": gpus}, **more)
        await self.harness.set(workload_id, preemptible=preemptible)
        if node is not None:
            await self.place()
            await self.work_off()
            [task] = await self.harness.tasks(workload_id)
            assert (task.status, task.node_id) == (T.RUNNING, self.nodes[node])
        return workload_id

    async def fragmented(self) -> tuple[UUID, UUID]:
        """Return work that has to leave its node, and pending work for a whole node."""
        self.nodes = {name: await self.harness.node(name, cpu=8, slots={"gpu": 4}) for name in ("n1", "n2")}
        small = await self.session("small", 1, "n1")
        await self.session("other", 2, "n2", preemptible=False)
        return small, await self.session("large", 4)

    async def plans(self) -> list[StoredPlan]:
        async with self.harness.database.read() as connection:
            return await defragmentation_plans.newest(connection, "default", 20)

    async def moves(self) -> list[str]:
        return [move.status.value for plan in await self.plans() for move in plan.moves]


def _tasks() -> Any:
    from sqlalchemy import select

    from mooring.store.tables import tasks

    return select(tasks).where(tasks.c.freed_at.is_(None)).order_by(tasks.c.id)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    time = Clock()
    monkeypatch.setattr(clock, "source", time)
    return time


@pytest.fixture
async def world(harness: Harness, time: Clock) -> AsyncIterator[World]:
    world = World(harness, time)
    await world.scheduling.start()
    yield world
    world.scheduling.close()


async def test_nothing_moves_unless_the_pool_allows_moves(world: World):
    small, _ = await world.fragmented()
    await world.iterate()
    assert await world.plans() == []
    assert await world.harness.statuses(small) == ["RUNNING"]


async def test_pending_work_starts_after_the_moves_of_a_plan(world: World):
    small, large = await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    [plan] = await world.plans()
    assert (plan.status, plan.gained, [move.workload for move in plan.moves]) == (PlanStatus.EXECUTING, 4, ["small"])
    assert plan.bound == pytest.approx(4, abs=0.1)
    await world.iterate()
    [task] = await world.harness.tasks(small)
    assert (task.status, task.node_id) == ("RUNNING", world.nodes["n2"])
    await world.iterate()
    [plan] = await world.plans()
    assert (plan.status, plan.reason) == (PlanStatus.COMPLETED, None)
    assert [(move.status, move.replacement_id) for move in plan.moves] == [(MoveStatus.ARRIVED, task.id)]
    assert await world.harness.statuses(large) == ["RUNNING"]
    kinds = [
        (event.kind, event.details["status"], event.term)
        for event in await world.harness.feed(world.harness.pool.id)
        if event.kind == "defragmentation"
    ]
    term = world.harness.leadership.term
    assert kinds == [("defragmentation", "EXECUTING", term), ("defragmentation", "COMPLETED", term)]
    reasons = [str(row.reason) for row in await world.harness.history(small)]
    assert any(f"from n1 to n2 by defragmentation for plan {plan.id}" in reason for reason in reasons)
    assert await world.harness.findings() == []


async def test_no_hour_has_more_moves_than_the_budget_whoever_leads(world: World):
    await world.fragmented()
    await world.rules(moves_per_hour=1, max_lost_seconds=10**6)
    for _ in range(3):
        await world.iterate()
    assert await world.moves() == ["ARRIVED"]
    # Another request for a whole node: n2 has 1 GPU left, and its work may move now.
    await world.harness.node("n3", cpu=8, slots={"gpu": 4})
    world.nodes["n3"] = (await world.harness.rows(_node("n3")))[0].id
    await world.session("more", 1, "n3")
    await world.session("second", 4)
    await world.harness.leadership.begin_term()
    world.loop = world.new_loop()
    await world.place()
    for seconds in (61, 1200, 1200):
        world.time.forward(seconds)
        await world.iterate()
    assert await world.moves() == ["ARRIVED"]
    world.time.forward(1200)
    for _ in range(3):
        await world.iterate()
    assert await world.moves() == ["ARRIVED", "ARRIVED"]


def _node(name: str) -> Any:
    from sqlalchemy import select

    from mooring.store.tables import nodes

    return select(nodes).where(nodes.c.name == name)


async def test_a_new_leader_continues_the_plan(world: World):
    _, large = await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    await world.harness.leadership.begin_term()
    world.loop = world.new_loop()
    for _ in range(2):
        await world.iterate()
    [plan] = await world.plans()
    assert plan.status is PlanStatus.COMPLETED
    assert await world.harness.statuses(large) == ["RUNNING"]


@on_sqlite
async def test_a_deposed_leader_moves_nothing(world: World):
    small, _ = await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    await world.harness.start_term("other")
    with pytest.raises(LeadershipLost):
        await world.loop.once()
    assert await world.harness.statuses(small) == ["RUNNING"]
    assert await world.moves() == ["PLANNED"]


@pytest.mark.parametrize(
    "change",
    ["work ended", "target filled", "target drained", "no budget", "pool paused", "served work cancelled"],
)
@on_sqlite
async def test_a_plan_stops_before_a_move_that_the_state_no_longer_allows(world: World, change: str):
    small, large = await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    if change == "work ended":
        await world.harness.stop(small)
    elif change == "target filled":
        await world.session("newcomer", 2, "n2")
    elif change == "target drained":
        await world.harness.drain(world.nodes["n2"])
    elif change == "no budget":
        await world.rules(moves_per_hour=0)
    elif change == "pool paused":
        await world.harness.set_options(paused=True, defragmentation={"moves_per_hour": 2})
    else:
        await world.harness.stop(large)
    await world.loop.once()
    [plan] = await world.plans()
    assert plan.status is PlanStatus.STOPPED
    assert plan.reason is not None
    assert plan.reason.startswith("the cluster departed from the plan: ")
    assert await world.moves() == ["LEFT_OUT"]
    if change != "work ended":
        assert await world.harness.statuses(small) == ["RUNNING"]


@on_sqlite
async def test_a_plan_stops_when_the_replacement_goes_elsewhere_and_the_pool_rests(world: World):
    await world.fragmented()
    await world.rules(moves_per_hour=2, max_lost_seconds=10**6)
    await world.iterate()
    await world.iterate(agents=False)
    # Its node is gone before the replacement gets there.
    await world.harness.drain(world.nodes["n2"])
    await world.work_off()
    await world.iterate()
    [plan] = await world.plans()
    assert plan.status is PlanStatus.STOPPED
    assert plan.reason == "the replacement of small is on n1 instead of n2"
    assert await world.moves() == ["DEPARTED"]
    await world.harness.drain(world.nodes["n2"], False)
    world.time.forward(590)
    await world.iterate()
    assert len(await world.plans()) == 1
    # Even after the rest, a task that was moved within the hour stays.
    world.time.forward(60)
    await world.iterate()
    assert len(await world.plans()) == 1
    world.time.forward(3600)
    await world.iterate()
    assert len(await world.plans()) == 2


@on_sqlite
async def test_a_replacement_that_does_not_run_in_time_ends_the_plan(world: World):
    await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    await world.iterate(agents=False)
    world.time.forward(601)
    await world.loop.once()
    [plan] = await world.plans()
    assert plan.status is PlanStatus.STOPPED
    assert plan.reason == "the replacement of small has not been created after 600 seconds"


@on_sqlite
async def test_work_over_quota_causes_no_moves(world: World):
    await world.fragmented()

    async def limit(connection: Connection) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(world.harness.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits={"gpu": 4000}), world.time.now())

    await world.harness.database.write(limit)
    await world.rules(moves_per_hour=2)
    await world.iterate()
    assert await world.plans() == []


@on_sqlite
async def test_interactive_sessions_move_only_if_the_pool_says_so(world: World):
    world.nodes = {name: await world.harness.node(name, cpu=8, slots={"gpu": 4}) for name in ("n1", "n2")}
    await world.session("notebook", 1, "n1", type="interactive")
    await world.session("other", 2, "n2", preemptible=False)
    await world.session("large", 4)
    await world.rules(moves_per_hour=2)
    await world.iterate()
    assert await world.plans() == []
    await world.rules(moves_per_hour=2, interactive=True)
    world.time.forward(3600)
    for _ in range(3):
        await world.iterate()
    assert await world.moves() == ["ARRIVED"]


@on_sqlite
async def test_retention_deletes_plans_that_ended(world: World):
    await world.fragmented()
    await world.rules(moves_per_hour=2)
    await world.iterate()
    world.time.forward(60)
    at = world.time.now()
    assert await world.harness.database.write(lambda c: defragmentation_plans.purge(c, at, 10)) == 0
    for _ in range(2):
        await world.iterate()
    assert await world.harness.database.write(lambda c: defragmentation_plans.purge(c, at, 10)) == 0
    world.time.forward(1)
    later = world.time.now()
    assert await world.harness.database.write(lambda c: defragmentation_plans.purge(c, later, 10)) == 1
    assert await world.plans() == []
