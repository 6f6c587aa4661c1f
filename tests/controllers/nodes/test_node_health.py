"""A silent node is suspect, then lost with its tasks, in time and not before."""

from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import update

from mooring.clock import now as really_now
from mooring.controllers.nodes import node_health as nodes_loop
from mooring.controllers.nodes.node_health import NodeHealthLoop
from mooring.controllers.nodes.simulation import SimulationLoop
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.heartbeats import Pace
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Kind
from mooring.store.commit.status_changes import Change
from mooring.store.nodes import nodes as nodes_store
from mooring.store.tables import nodes
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

T = TaskStatus
TIMEOUT = 30
SUSPECT = 15
"""Two pauses of 5 s, and as much grace."""


class Clock:
    def __init__(self) -> None:
        self.at = really_now()

    def __call__(self) -> datetime:
        return self.at

    def pass_seconds(self, seconds: float) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(nodes_loop, "now", clock)
    return clock


async def test_a_silent_node_is_lost_and_its_tasks_are_replaced_or_fail(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", seen_at=clock())
    service, job = await harness.submit("web"), await harness.submit("job", kind=Kind.SESSION, type="interactive")
    await harness.run(service)
    await harness.run(job)
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    node = await harness.node_row(node_id)
    assert (node.status, node.reason) == ("LOST", "no heartbeat for 30 s")
    assert (await harness.statuses(service), await harness.statuses(job)) == (["LOST"], ["LOST"])
    assert (await harness.workload(job)).status == "FAILED"
    assert (await harness.workload(job)).reason["code"] == "node-lost"
    # Silence is not proof: what may still run there stays charged.
    assert await harness.counters(node_id) == (0, 0, 2000)
    await harness.replace_ended()
    assert [(t.attempt, t.status, t.not_before) for t in await harness.tasks(service)] == [(2, "PENDING", None)]
    assert await harness.findings() == []
    # A second look changes nothing.
    clock.pass_seconds(TIMEOUT)
    before = await harness.history(node_id)
    await loop.once()
    assert await harness.history(node_id) == before


async def test_a_silent_node_is_suspect_first_and_ready_again_by_the_next_heartbeat(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    node_id = await harness.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    running = await harness.submit("web")
    await harness.run(running)
    before = await harness.node_row(node_id)
    clock.pass_seconds(SUSPECT + 1)
    await loop.once()
    suspect = await harness.node_row(node_id)
    assert (suspect.status, suspect.reason) == ("SUSPECT", "no heartbeat for 15 s")
    assert suspect.generation == before.generation + 1
    assert await harness.statuses(running) == ["RUNNING"]
    waiting = await harness.submit("late")
    [decision] = await harness.propose()
    assert decision.reason is not None
    assert decision.reason.message == "0 of 1 node: 1 not ready (1 suspect)"
    await harness.beat(node_id, clock())
    again = await harness.node_row(node_id)
    assert (again.status, again.reason, again.generation) == ("READY", None, before.generation + 2)
    await harness.place()
    assert await harness.statuses(waiting) == ["SCHEDULED"]
    steps = [(h.old_status, h.new_status, h.actor) for h in await harness.history(node_id)]
    assert steps[-2:] == [("READY", "SUSPECT", "nodes"), ("SUSPECT", "READY", "agent")]
    assert [event.kind for event in await harness.feed(node_id)][-2:] == ["SUSPECT", "health"]


@on_sqlite
async def test_a_suspect_node_that_stays_silent_is_lost(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    node_id = await harness.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    job = await harness.submit("job", kind=Kind.SESSION)
    await harness.run(job)
    for seconds in (SUSPECT + 1, TIMEOUT - SUSPECT):
        clock.pass_seconds(seconds)
        await loop.once()
    steps = [(h.old_status, h.new_status) for h in await harness.history(node_id)]
    assert steps[-2:] == [("READY", "SUSPECT"), ("SUSPECT", "LOST")]
    assert await harness.statuses(job) == ["LOST"]


@on_sqlite
async def test_a_draining_node_that_was_suspect_continues_draining(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    node_id = await harness.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    clock.pass_seconds(SUSPECT + 1)
    await loop.once()
    await harness.drain(node_id)
    assert (await harness.node_row(node_id)).status == "SUSPECT"
    await harness.beat(node_id, clock())
    assert (await harness.node_row(node_id)).status == "DRAINING"


async def test_many_nodes_that_fall_silent_at_once_cost_a_few_transactions(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    at = clock.pass_seconds(TIMEOUT)
    node_ids = [await harness.node(f"n{number}", cpu=1, seen_at=at) for number in range(12)]
    service = await harness.submit("web", replicas=12)
    await harness.run(service)
    commits: list[None] = []
    harness.database.on_commit.append(lambda _topics: commits.append(None))
    for seconds, status in ((SUSPECT + 1, "SUSPECT"), (TIMEOUT - SUSPECT, "LOST")):
        clock.pass_seconds(seconds)
        await loop.once()
        assert {(await harness.node_row(node_id)).status for node_id in node_ids} == {status}
        assert len(commits) == 1
        commits.clear()
    assert set(await harness.statuses(service)) == {"LOST"}
    assert await harness.findings() == []


@on_sqlite
async def test_in_a_large_cluster_silence_counts_later(harness: Harness, clock: Clock):
    # Ten nodes at one heartbeat in ten seconds of all together: a pause of 100 s, lost after three of them.
    loop = NodeHealthLoop(harness.fenced, Pace(most_per_second=0.1, timeout_seconds=TIMEOUT))
    at = clock.pass_seconds(300)
    node_ids = [await harness.node(f"n{number}", seen_at=at) for number in range(10)]

    async def seen_after(seconds: float) -> set[str]:
        clock.pass_seconds(seconds)
        await loop.once()
        return {(await harness.node_row(node_id)).status for node_id in node_ids}

    assert await seen_after(200) == {"READY"}
    assert await seen_after(50) == {"SUSPECT"}
    # The remaining nodes are not expected to report sooner than their interval.
    while len(node_ids) > 1:
        gone = node_ids.pop()
        await harness.database.write(partial(nodes_store.remove, node_id=gone, force=True, actor="test", now=at))
    assert await seen_after(10) == {"SUSPECT"}
    assert await seen_after(100) == {"LOST"}


@on_sqlite
async def test_a_heartbeat_in_time_prevents_it(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", seen_at=clock())
    loop = harness.nodes_loop(TIMEOUT)
    for _ in range(4):
        await harness.beat(node_id, clock.pass_seconds(TIMEOUT - 1))
        await loop.once()
    assert (await harness.node_row(node_id)).status == "READY"


@on_sqlite
async def test_after_a_start_agents_get_time_to_reconnect(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", seen_at=clock() - timedelta(hours=1))
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT - 1)
    await loop.once()
    assert (await harness.node_row(node_id)).status == "READY"
    clock.pass_seconds(10)
    await loop.once()
    assert (await harness.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_a_leader_that_could_not_listen_declares_no_node_silent(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    node_id = await harness.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    await loop.once()
    # The database was away, so neither heartbeats nor this loop came to it.
    clock.pass_seconds(TIMEOUT * 4)
    await loop.once()
    assert (await harness.node_row(node_id)).status == "READY"
    for _ in range(2):
        clock.pass_seconds(TIMEOUT / 2)
        await loop.once()
    assert (await harness.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_silence_counts_also_after_the_clock_was_put_back(harness: Harness, clock: Clock):
    loop = harness.nodes_loop(TIMEOUT)
    node_id = await harness.node("n1", seen_at=clock())
    await loop.once()
    clock.pass_seconds(-3600)
    await loop.once()
    await harness.beat(node_id, clock())
    for _ in range(3):
        clock.pass_seconds(TIMEOUT / 2)
        await loop.once()
    assert (await harness.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_simulated_nodes_and_nodes_that_never_came_are_not_lost(harness: Harness, clock: Clock):
    simulated = await harness.node("sim", simulated=True)
    never = await harness.node("never")
    await harness.database.write(lambda c: c.execute(update(nodes).values(last_seen_at=None)))
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT * 10)
    await loop.once()
    assert [(await harness.node_row(n)).status for n in (simulated, never)] == ["READY", "READY"]


@on_sqlite
async def test_a_task_that_was_bound_while_its_node_was_lost_is_lost_as_well(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", seen_at=clock())
    job = await harness.submit("job", kind=Kind.SESSION)
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    [task] = await harness.tasks(job)
    await harness.apply(Change(task.id, T.SCHEDULED, node_id=node_id, node_name="n1"))
    clock.pass_seconds(TIMEOUT / 2)
    await loop.once()
    assert await harness.statuses(job) == ["LOST"]
    assert await harness.findings() == []


@on_sqlite
async def test_a_node_that_returns_accepts_work_and_frees_ended_tasks(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", cpu=1, seen_at=clock())
    service = await harness.submit("web")
    [lost] = await harness.run(service)
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    await harness.replace_ended()
    await harness.beat(node_id, clock())
    await harness.place()
    assert await harness.statuses(service) == ["PENDING"]
    await harness.free_lost(lost.id)
    await harness.place()
    assert await harness.statuses(service) == ["SCHEDULED"]
    assert await harness.findings() == []


@on_sqlite
async def test_capacity_that_a_lost_task_may_still_hold_is_not_given_to_others(harness: Harness, clock: Clock):
    node_id = await harness.node("n1", seen_at=clock(), slots={"gpu": 2})
    wants = Constraints(ports_wanted=1)
    service = await harness.submit("web", constraints=wants, slots={"gpu": 1})
    [lost] = await harness.run(service)
    loop = harness.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    await harness.replace_ended()
    await harness.beat(node_id, clock())
    await harness.place()
    [again] = await harness.tasks(service)
    assert (lost.ports, again.ports) == ([["TCP", 2000]], [["TCP", 2001]])
    assert (lost.devices, again.devices) == ({"gpu": [[0, 1000]]}, {"gpu": [[1, 1000]]})
    await harness.free_lost(lost.id)
    other = await harness.submit("other", constraints=wants, slots={"gpu": 1})
    await harness.place()
    [third] = await harness.tasks(other)
    assert (third.ports, third.devices) == (lost.ports, lost.devices)
    assert await harness.findings() == []


@on_sqlite
async def test_tasks_on_simulated_nodes_take_the_steps_that_an_agent_would_report(harness: Harness):
    await harness.node("sim", simulated=True, cpu=2)
    await harness.node("real", cpu=1)
    service = await harness.submit("web", replicas=3)
    await harness.place()
    loop = SimulationLoop(harness.fenced)
    await loop.once()
    found = {t.node_name: t.status for t in await harness.tasks(service)}
    assert found == {"sim": "RUNNING", "real": "SCHEDULED"}
    await harness.stop(service)
    await loop.once()
    assert sorted(await harness.statuses(service)) == ["CANCELLED", "CANCELLED", "TERMINATING"]
    assert not await loop.once()
    assert await harness.findings() == []


@on_sqlite
async def test_a_task_ended_by_force_leaves_its_simulated_node(harness: Harness):
    node = await harness.node("sim", simulated=True, cpu=2)
    service = await harness.submit("web", cpu=2)
    await harness.place()
    loop = SimulationLoop(harness.fenced)
    await loop.once()
    await harness.stop(service, force=True)
    assert await harness.counters(node) == (0, 0, 2000)
    await loop.once()
    assert await harness.counters(node) == (0, 0, 0)
    assert await harness.findings() == []
