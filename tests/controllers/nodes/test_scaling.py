"""Pools that grow and shrink: which nodes are asked for, which of them have joined, and which may go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring import clock
from mooring.binding.binder import Binder
from mooring.controllers.nodes.scaling import ScalingLoop
from mooring.controllers.scheduling.scheduling_loop import SchedulingLoop
from mooring.coordination.leadership import Leadership
from mooring.mirror.mirror import Mirror
from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.errors import LeadershipLost
from mooring.model.lifecycle import NodeStatus, TaskStatus
from mooring.model.nodes.node_templates import NodeTemplate, ScaleRequest, ScaleRequestStatus
from mooring.model.resources.slots import parse_amounts
from mooring.model.tenancy.quotas import Scope
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import OnInsufficient
from mooring.store import tables
from mooring.store.core.engine import Connection
from mooring.store.core.ids import new_id
from mooring.store.nodes import nodes
from mooring.store.reservations import timeslots
from mooring.store.scaling import node_templates, scale_requests, scaling_states
from mooring.store.scaling.scaling_states import NOTHING, ScalingState
from mooring.store.tenancy import quotas
from mooring.store.tenancy.admin_actions import SERVER
from mooring.store.tenancy.quotas import QuotaChange
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

S = ScaleRequestStatus
GROW = OnInsufficient.SCALE_UP


class Clock:
    """The time that a test says."""

    def __init__(self) -> None:
        self.at = datetime(2026, 5, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def forward(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class World:
    def __init__(self, harness: Harness, time: Clock) -> None:
        self.harness = harness
        self.time = time
        self.scheduling = SchedulingLoop(Mirror(harness.database), Binder(harness.database), harness.leadership)
        self.scaling = ScalingLoop(harness.fenced, self.scheduling, gather_seconds=0, pause_seconds=0)

    async def iterate(self) -> list[ScaleRequest]:
        """Everything that is to be done now; all requests so far, the newest first."""
        while await self.scheduling.once():
            pass
        await self.scaling.once()
        return await self.requests()

    async def requests(self) -> list[ScaleRequest]:
        async with self.harness.database.read() as connection:
            return await scale_requests.newest(connection, pool="default", limit=100)

    async def state(self) -> ScalingState:
        async with self.harness.database.read() as connection:
            return (await scaling_states.by_pool(connection)).get("default", NOTHING)

    async def template(self, name: str = "small", *, cpu: int = 4, **more: Any) -> NodeTemplate:
        amounts = parse_amounts({"cpu": cpu, "memory": "16Gi"})
        made = NodeTemplate(name, allocatable=amounts, runtimes=frozenset({"process"}), **more)
        await self.harness.database.write(lambda c: node_templates.put(c, made, actor=SERVER, now=self.time.now()))
        return made

    async def join(self, name: str, *, cpu: int = 4, **more: Any) -> UUID:
        """A machine like those of the template joins."""
        capacity = parse_amounts({"cpu": cpu, "memory": "16Gi"})
        new = nodes.NewNode(name, self.harness.pool.id, capacity, "x86_64", ["process"], **more)
        node_id = await self.harness.database.write(lambda c: nodes.add(c, new, actor="test", now=self.time.now()))
        await self.harness.connect(node_id, capacity, self.time.now())
        return node_id

    async def rules(self, **rules: Any) -> None:
        await self.harness.set_options(scaling=rules)


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


def shown(requests: list[ScaleRequest]) -> list[tuple[str, int, int, str]]:
    return [(each.template, len(each.wanted), each.joined, each.status.value) for each in requests]


async def test_one_scale_request_covers_all_pending_work_which_runs_when_the_nodes_join(world: World):
    await world.template(cpu=4)
    work = [await world.harness.submit(f"w{n}", cpu=2, on_insufficient=GROW) for n in range(3)]
    assert shown(await world.iterate()) == [("small", 2, 0, "REQUESTED")]
    # However often it looks, and after the cooldown, too: they are on their way.
    world.time.forward(61)
    assert len(await world.iterate()) == 1
    first = await world.join("n1")
    assert shown(await world.iterate()) == [("small", 2, 1, "REQUESTED")]
    second = await world.join("n2")
    [request] = await world.iterate()
    assert (request.status, request.joined) == (S.SATISFIED, 2)
    for node_id in (first, second):
        row = await world.harness.node_row(node_id)
        assert (row.template, row.scale_request_id) == ("small", request.id)
    assert [await world.harness.statuses(each) for each in work] == [["SCHEDULED"]] * 3
    feed = await world.harness.feed(request.id)
    assert [event.kind for event in feed] == ["REQUESTED", "REQUESTED", "SATISFIED"]
    assert feed[0].details["template"] == "small"
    assert feed[0].term == world.harness.leadership.term


@on_sqlite
async def test_only_work_that_says_so_asks_for_nodes(world: World):
    await world.template()
    await world.harness.submit("patient")
    assert await world.iterate() == []


@on_sqlite
async def test_work_blocked_by_unschedulable_work_gets_nodes_with_it(world: World):
    await world.harness.set_options(head_of_line="strict")
    await world.template(cpu=4)
    await world.harness.node("n1", cpu=1)
    await world.harness.submit("first", cpu=4, on_insufficient=GROW)
    await world.harness.submit("second", cpu=3, on_insufficient=GROW)
    [request] = await world.iterate()
    assert len(request.wanted) == 2


@on_sqlite
async def test_work_that_waits_for_a_time_requests_no_nodes(world: World):
    await world.template(cpu=4)
    later = world.time.at + timedelta(hours=1)
    await world.harness.submit("later", cpu=4, on_insufficient=GROW, schedule=ScheduleOptions(starts_at=later))
    assert await world.iterate() == []
    world.time.forward(3600)
    assert len(await world.iterate()) == 1


@on_sqlite
async def test_demand_that_no_template_fits_is_reported_and_requests_no_nodes(world: World):
    await world.template(cpu=4)
    large = await world.harness.submit("large", cpu=8, on_insufficient=GROW)
    assert await world.iterate() == []
    assert [(each.workload_id, each.code) for each in (await world.state()).unmet] == [(large, "no-template")]
    # Another template changes that.
    await world.template("large", cpu=16)
    assert shown(await world.iterate()) == [("large", 1, 0, "REQUESTED")]
    assert (await world.state()) == NOTHING


@on_sqlite
async def test_a_pool_without_templates_says_so(world: World):
    await world.harness.submit("web", on_insufficient=GROW)
    assert await world.iterate() == []
    assert [each.code for each in (await world.state()).unmet] == ["no-template"]


@on_sqlite
async def test_no_nodes_are_requested_beyond_the_limits_of_tenants(world: World):
    await world.template(cpu=4)

    async def limit(connection: Connection) -> None:
        found = await quotas.find(connection, Scope.PROJECT, str(world.harness.principal.project_id))
        await quotas.set_quota(connection, found, QuotaChange(limits={"cpu": 6000}), world.time.now())

    await world.harness.database.write(limit)
    for number in range(10):
        await world.harness.submit(f"w{number}", cpu=2, on_insufficient=GROW)
    assert shown(await world.iterate()) == [("small", 2, 0, "REQUESTED")]


@on_sqlite
async def test_limits_of_templates_and_pools_include_requested_nodes(world: World):
    await world.template(cpu=4, most=1)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    assert shown(await world.iterate()) == [("small", 1, 0, "REQUESTED")]
    other = await world.harness.submit("w2", cpu=4, on_insufficient=GROW)
    world.time.forward(61)
    assert len(await world.iterate()) == 1
    assert [(each.workload_id, each.code) for each in (await world.state()).unmet] == [(other, "scaling-limit")]


@on_sqlite
async def test_a_cooldown_separates_two_scale_requests_and_ends_without_a_signal(world: World):
    await world.template(cpu=4)
    await world.rules(cooldown_seconds=120)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    await world.iterate()
    await world.harness.submit("w2", cpu=4, on_insufficient=GROW)
    world.time.forward(119)
    assert len(await world.iterate()) == 1
    assert world.scaling.wait_seconds(600) == 1
    world.time.forward(1)
    assert len(await world.iterate()) == 2


@on_sqlite
async def test_work_that_comes_in_a_burst_is_gathered_before_nodes_are_asked_for(harness: Harness, world: World):
    world.scaling = ScalingLoop(harness.fenced, world.scheduling, gather_seconds=2, pause_seconds=0)
    await world.template(cpu=4)
    await harness.submit("w1", cpu=2, on_insufficient=GROW)
    assert await world.iterate() == []
    assert world.scaling.wait_seconds(600) == 2
    await harness.submit("w2", cpu=2, on_insufficient=GROW)
    world.time.forward(2)
    assert shown(await world.iterate()) == [("small", 1, 0, "REQUESTED")]


@on_sqlite
async def test_nodes_that_do_not_join_in_time_are_asked_for_again(world: World):
    await world.template(cpu=4, boot_seconds=600)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    await world.iterate()
    world.time.forward(2 * 600 + 300)
    assert shown(await world.iterate()) == [("small", 1, 0, "REQUESTED"), ("small", 1, 0, "EXPIRED")]
    # The late one is known all the same, and does for the request that is open.
    late = await world.join("late")
    assert shown(await world.iterate()) == [("small", 1, 1, "SATISFIED"), ("small", 1, 0, "EXPIRED")]
    other = await world.join("later")
    assert shown(await world.iterate())[1] == ("small", 1, 1, "EXPIRED")
    for node_id in (late, other):
        assert (await world.harness.node_row(node_id)).template == "small"


@on_sqlite
async def test_a_node_joins_for_the_template_that_is_nearest_to_it(world: World):
    await world.template("small", cpu=4)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    await world.iterate()
    await world.template("large", cpu=16, cost=2)
    await world.harness.submit("w2", cpu=16, on_insufficient=GROW)
    world.time.forward(61)
    await world.iterate()
    node_id = await world.join("n1", cpu=16)
    await world.iterate()
    assert (await world.harness.node_row(node_id)).template == "large"


@on_sqlite
async def test_nodes_that_were_there_before_and_other_nodes_satisfy_nothing(world: World):
    await world.template(cpu=4)
    earlier = await world.join("earlier", cpu=1)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    world.time.forward(1)
    await world.iterate()
    other = await world.join("other", cpu=2)
    assert shown(await world.iterate()) == [("small", 1, 0, "REQUESTED")]
    for node_id in (earlier, other):
        assert (await world.harness.node_row(node_id)).template is None


@on_sqlite
async def test_refused_templates_are_not_used_until_they_are_set_again(world: World):
    await world.template(cpu=4)
    work = await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    [request] = await world.iterate()
    await refuse(world, request)
    world.time.forward(61)
    assert len(await world.iterate()) == 1
    [unmet] = (await world.state()).unmet
    assert (unmet.workload_id, unmet.code) == (work, "nodes-refused")
    assert "out of stock" in unmet.message
    await world.template(cpu=4)
    assert shown(await world.iterate()) == [("small", 1, 0, "REQUESTED"), ("small", 1, 0, "REFUSED")]


async def refuse(world: World, request: ScaleRequest) -> None:
    changed = replace(request, status=S.REFUSED, error="out of stock", next_attempt_at=None)
    await world.harness.database.write(
        lambda c: scale_requests.save(c, [changed], now=world.time.now(), term=world.harness.leadership.term)
    )


@on_sqlite
async def test_a_deposed_leader_asks_for_nothing(world: World):
    await world.template(cpu=4)
    await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    await world.scheduling.once()
    await Leadership(world.harness.database, "other").begin_term()
    with pytest.raises(LeadershipLost):
        await world.scaling.once()
    assert await world.requests() == []


async def grown(world: World, **rules: Any) -> UUID:
    """A pool that grew by one node, whose work has ended."""
    await world.rules(**rules)
    await world.template(cpu=4)
    work = await world.harness.submit("w1", cpu=4, on_insufficient=GROW)
    await world.iterate()
    node_id = await world.join("n1")
    await world.iterate()
    [task] = await world.harness.tasks(work)
    await world.harness.move(task, TaskStatus.RUNNING)
    world.time.forward(3600)
    await world.iterate()
    assert (await world.state()).advice == ()
    await world.harness.stop(work)
    await world.harness.move(task, TaskStatus.CANCELLED)
    return node_id


@on_sqlite
async def test_idle_nodes_are_advised_to_go_after_their_time(world: World):
    node_id = await grown(world, idle_seconds=600)
    world.time.forward(599)
    await world.iterate()
    assert (await world.state()).advice == ()
    assert world.scaling.wait_seconds(3600) == 1
    world.time.forward(1)
    await world.iterate()
    [advised] = (await world.state()).advice
    assert (advised.node, advised.step, advised.since) == ("n1", "drain", world.time.at)
    since = world.time.at
    world.time.forward(60)
    await world.iterate()
    assert [each.since for each in (await world.state()).advice] == [since]
    received = [event for event in await world.harness.feed(node_id) if event.kind == "advised"]
    assert [event.details for event in received] == [{"step": "drain"}]
    assert not (await world.harness.node_row(node_id)).draining


async def test_idle_nodes_are_drained_and_resumed_for_new_work_if_the_pool_says_so(world: World):
    node_id = await grown(world, idle_seconds=600, shrink_cooldown_seconds=300, shrink="drain")
    world.time.forward(600)
    await world.iterate()
    row = await world.harness.node_row(node_id)
    assert (row.draining, row.status) == (True, NodeStatus.DRAINING)
    assert "idle" in row.drain_reason
    await world.harness.draining_loop().once()
    world.time.forward(300)
    await world.iterate()
    assert [(each.node, each.step) for each in (await world.state()).advice] == [("n1", "remove")]
    work = await world.harness.submit("w2", cpu=4, on_insufficient=GROW)
    assert len(await world.iterate()) == 1
    assert not (await world.harness.node_row(node_id)).draining
    await world.iterate()
    assert await world.harness.statuses(work) == ["SCHEDULED"]


@on_sqlite
async def test_only_drains_of_the_scaling_loop_are_undone_whatever_their_reason_says(world: World):
    node_id = await grown(world, idle_seconds=600, shrink_cooldown_seconds=300, shrink="drain")
    world.time.forward(600)
    await world.iterate()
    reason = (await world.harness.node_row(node_id)).drain_reason

    async def drain(connection: Connection) -> None:
        await nodes.set_draining(connection, node_id, True, actor="an admin", now=world.time.at, reason=reason)

    await world.harness.database.write(drain)
    await world.harness.submit("w2", cpu=4, on_insufficient=GROW)
    await world.iterate()
    assert (await world.harness.node_row(node_id)).draining


@on_sqlite
async def test_work_that_no_node_would_help_keeps_none_and_other_work_that_waits_does(world: World):
    await grown(world, idle_seconds=600)
    await world.harness.submit("giant", cpu=100, on_insufficient=GROW)
    gang = await world.harness.submit("gang", cpu=4, replicas=2, gang=True)
    world.time.forward(600)
    await world.iterate()
    assert [each.code for each in (await world.state()).unmet] == ["no-template"]
    assert (await world.state()).advice == ()
    await world.harness.stop(gang)
    await world.iterate()
    assert [each.node for each in (await world.state()).advice] == ["n1"]


@on_sqlite
async def test_unrequested_nodes_and_the_minimum_number_stay(world: World):
    await world.join("own")
    await grown(world, least=2)
    world.time.forward(7200)
    await world.iterate()
    assert (await world.state()).advice == ()


@on_sqlite
async def test_a_timeslot_that_lost_its_capacity_gets_nodes_in_time(world: World):
    await world.harness.set_options(on_insufficient="scale_up")
    await world.template(cpu=4, boot_seconds=600)
    lead_seconds = 900
    own = [await world.join(name) for name in ("n1", "n2", "n3")]
    placements = dict.fromkeys(own, 1)
    slot = booking(world, starts_in=timedelta(hours=2), lead_seconds=lead_seconds, count=3, placements=placements)
    await world.harness.database.write(lambda c: timeslots.insert(c, [slot], world.time.at))
    await world.iterate()
    world.time.forward(60)
    for node_id in own[1:]:
        assert await world.harness.fall_silent(node_id, world.time.at)
    assert await world.iterate() == []
    assert await status_of(world, slot) is TimeslotStatus.AT_RISK
    # Its lead and the time to boot before its start.
    begins = 7200 - 60 - lead_seconds - 600
    assert world.scaling.wait_seconds(100_000) == begins
    world.time.forward(begins)
    [request] = await world.iterate()
    assert request.wanted == ({slot.id: 1}, {slot.id: 1})
    for name in ("n4", "n5"):
        await world.join(name)
    assert [each.status for each in await world.iterate()] == [S.SATISFIED]
    await world.iterate()
    assert await status_of(world, slot) is TimeslotStatus.CONFIRMED


async def status_of(world: World, slot: Timeslot) -> TimeslotStatus:
    async with world.harness.database.read() as connection:
        [found] = await timeslots.load(connection, [slot.id])
    return found.status


def booking(world: World, *, starts_in: timedelta, **more: Any) -> Timeslot:
    """A confirmed one of half an hour, for tasks that fill a node."""
    principal, starts_at = world.harness.principal, world.time.at + starts_in
    return Timeslot(
        new_id(),
        "class",
        TimeslotKind.BOOKING,
        world.harness.pool.name,
        TimeslotStatus.CONFIRMED,
        starts_at,
        starts_at + timedelta(minutes=30),
        request=parse_amounts({"cpu": 4}),
        user_id=principal.user_id,
        project_id=principal.project_id,
        domain_id=principal.domain_id,
        access_key=principal.access_key,
        **more,
    )


@on_sqlite
async def test_a_node_that_is_booked_stays(world: World):
    node_id = await grown(world)
    slot = booking(world, starts_in=timedelta(days=20), placements={node_id: 1})
    await world.harness.database.write(lambda c: timeslots.insert(c, [slot], world.time.at))
    world.time.forward(3600)
    await world.iterate()
    assert (await world.state()).advice == ()
    await world.harness.database.write(
        lambda c: c.execute(tables.timeslots.update().values(status=TimeslotStatus.CANCELLED))
    )
    await world.iterate()
    assert [each.node for each in (await world.state()).advice] == ["n1"]
