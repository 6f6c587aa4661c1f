"""A silent node is suspect, then lost with its tasks, in time and not before."""

from datetime import datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import update

from mooring.clock import now as really_now
from mooring.controllers import nodes as nodes_loop
from mooring.controllers.nodes import NodesLoop
from mooring.controllers.simulation import SimulationLoop
from mooring.model.constraints import Constraints
from mooring.model.heartbeats import Pace
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads import Kind
from mooring.store import nodes as nodes_store
from mooring.store.changes import Change
from mooring.store.tables import nodes
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

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


async def test_a_silent_node_is_lost_and_its_tasks_are_replaced_or_fail(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", seen_at=clock())
    service, job = await harbour.submit("web"), await harbour.submit("job", kind=Kind.SESSION, type="interactive")
    await harbour.run(service)
    await harbour.run(job)
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    node = await harbour.node_row(node_id)
    assert (node.status, node.reason) == ("LOST", "no heartbeat for 30 s")
    assert (await harbour.statuses(service), await harbour.statuses(job)) == (["LOST"], ["LOST"])
    assert (await harbour.workload(job)).status == "FAILED"
    assert (await harbour.workload(job)).reason["code"] == "node-lost"
    # Silence is not proof: what may still run there stays charged.
    assert await harbour.counters(node_id) == (0, 0, 2000)
    await harbour.replace_ended()
    assert [(t.attempt, t.status, t.not_before) for t in await harbour.tasks(service)] == [(2, "PENDING", None)]
    assert await harbour.findings() == []
    # A second look changes nothing.
    clock.pass_seconds(TIMEOUT)
    before = await harbour.history(node_id)
    await loop.once()
    assert await harbour.history(node_id) == before


async def test_a_silent_node_is_suspect_first_and_ready_again_by_the_next_heartbeat(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    node_id = await harbour.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    running = await harbour.submit("web")
    await harbour.run(running)
    before = await harbour.node_row(node_id)
    clock.pass_seconds(SUSPECT + 1)
    await loop.once()
    suspect = await harbour.node_row(node_id)
    assert (suspect.status, suspect.reason) == ("SUSPECT", "no heartbeat for 15 s")
    assert suspect.generation == before.generation + 1
    assert await harbour.statuses(running) == ["RUNNING"]
    waiting = await harbour.submit("late")
    [decision] = await harbour.propose()
    assert decision.reason is not None
    assert decision.reason.message == "0 of 1 node: 1 not ready (1 suspect)"
    await harbour.beat(node_id, clock())
    again = await harbour.node_row(node_id)
    assert (again.status, again.reason, again.generation) == ("READY", None, before.generation + 2)
    await harbour.place()
    assert await harbour.statuses(waiting) == ["SCHEDULED"]
    steps = [(h.old_status, h.new_status, h.actor) for h in await harbour.history(node_id)]
    assert steps[-2:] == [("READY", "SUSPECT", "nodes"), ("SUSPECT", "READY", "agent")]
    assert [event.kind for event in await harbour.feed(node_id)][-2:] == ["SUSPECT", "health"]


@on_sqlite
async def test_a_suspect_node_that_stays_silent_is_lost(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    node_id = await harbour.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    job = await harbour.submit("job", kind=Kind.SESSION)
    await harbour.run(job)
    for seconds in (SUSPECT + 1, TIMEOUT - SUSPECT):
        clock.pass_seconds(seconds)
        await loop.once()
    steps = [(h.old_status, h.new_status) for h in await harbour.history(node_id)]
    assert steps[-2:] == [("READY", "SUSPECT"), ("SUSPECT", "LOST")]
    assert await harbour.statuses(job) == ["LOST"]


@on_sqlite
async def test_a_draining_node_that_was_suspect_goes_on_draining(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    node_id = await harbour.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    clock.pass_seconds(SUSPECT + 1)
    await loop.once()
    await harbour.drain(node_id)
    assert (await harbour.node_row(node_id)).status == "SUSPECT"
    await harbour.beat(node_id, clock())
    assert (await harbour.node_row(node_id)).status == "DRAINING"


async def test_many_nodes_that_fall_silent_at_once_cost_a_few_transactions(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    at = clock.pass_seconds(TIMEOUT)
    node_ids = [await harbour.node(f"n{number}", cpu=1, seen_at=at) for number in range(12)]
    service = await harbour.submit("web", replicas=12)
    await harbour.run(service)
    commits: list[None] = []
    harbour.database.on_commit.append(lambda: commits.append(None))
    for seconds, status in ((SUSPECT + 1, "SUSPECT"), (TIMEOUT - SUSPECT, "LOST")):
        clock.pass_seconds(seconds)
        await loop.once()
        assert {(await harbour.node_row(node_id)).status for node_id in node_ids} == {status}
        assert len(commits) == 1
        commits.clear()
    assert set(await harbour.statuses(service)) == {"LOST"}
    assert await harbour.findings() == []


@on_sqlite
async def test_in_a_large_cluster_silence_counts_later(harbour: Harbour, clock: Clock):
    # Ten nodes at one heartbeat in ten seconds of all together: a pause of 100 s, lost after three of them.
    loop = NodesLoop(harbour.database, harbour.office, Pace(most_per_second=0.1, timeout_seconds=TIMEOUT))
    at = clock.pass_seconds(300)
    node_ids = [await harbour.node(f"n{number}", seen_at=at) for number in range(10)]

    async def seen_after(seconds: float) -> set[str]:
        clock.pass_seconds(seconds)
        await loop.once()
        return {(await harbour.node_row(node_id)).status for node_id in node_ids}

    assert await seen_after(200) == {"READY"}
    assert await seen_after(50) == {"SUSPECT"}
    # Those who are left do not have to be heard sooner than they were told to speak.
    while len(node_ids) > 1:
        gone = node_ids.pop()
        await harbour.database.write(partial(nodes_store.remove, node_id=gone, force=True, actor="test", now=at))
    assert await seen_after(10) == {"SUSPECT"}
    assert await seen_after(100) == {"LOST"}


@on_sqlite
async def test_a_heartbeat_in_time_prevents_it(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", seen_at=clock())
    loop = harbour.nodes_loop(TIMEOUT)
    for _ in range(4):
        await harbour.beat(node_id, clock.pass_seconds(TIMEOUT - 1))
        await loop.once()
    assert (await harbour.node_row(node_id)).status == "READY"


@on_sqlite
async def test_after_a_start_agents_get_the_time_to_come_back(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", seen_at=clock() - timedelta(hours=1))
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT - 1)
    await loop.once()
    assert (await harbour.node_row(node_id)).status == "READY"
    clock.pass_seconds(10)
    await loop.once()
    assert (await harbour.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_who_could_not_listen_for_a_while_calls_nobody_silent(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    node_id = await harbour.node("n1", seen_at=clock.pass_seconds(TIMEOUT))
    await loop.once()
    # The database was away, so neither heartbeats nor this loop came to it.
    clock.pass_seconds(TIMEOUT * 4)
    await loop.once()
    assert (await harbour.node_row(node_id)).status == "READY"
    for _ in range(2):
        clock.pass_seconds(TIMEOUT / 2)
        await loop.once()
    assert (await harbour.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_silence_counts_also_after_the_clock_was_put_back(harbour: Harbour, clock: Clock):
    loop = harbour.nodes_loop(TIMEOUT)
    node_id = await harbour.node("n1", seen_at=clock())
    await loop.once()
    clock.pass_seconds(-3600)
    await loop.once()
    await harbour.beat(node_id, clock())
    for _ in range(3):
        clock.pass_seconds(TIMEOUT / 2)
        await loop.once()
    assert (await harbour.node_row(node_id)).status == "LOST"


@on_sqlite
async def test_simulated_nodes_and_nodes_that_never_came_are_not_lost(harbour: Harbour, clock: Clock):
    simulated = await harbour.node("sim", simulated=True)
    never = await harbour.node("never")
    await harbour.database.write(lambda c: c.execute(update(nodes).values(last_seen_at=None)))
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT * 10)
    await loop.once()
    assert [(await harbour.node_row(n)).status for n in (simulated, never)] == ["READY", "READY"]


@on_sqlite
async def test_a_task_that_was_bound_while_its_node_was_lost_is_lost_as_well(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", seen_at=clock())
    job = await harbour.submit("job", kind=Kind.SESSION)
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    [task] = await harbour.tasks(job)
    await harbour.apply(Change(task.id, T.SCHEDULED, node_id=node_id, node_name="n1"))
    clock.pass_seconds(TIMEOUT / 2)
    await loop.once()
    assert await harbour.statuses(job) == ["LOST"]
    assert await harbour.findings() == []


@on_sqlite
async def test_a_node_that_returns_takes_work_again_and_frees_what_is_gone(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", cpu=1, seen_at=clock())
    service = await harbour.submit("web")
    [lost] = await harbour.run(service)
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    await harbour.replace_ended()
    await harbour.beat(node_id, clock())
    await harbour.place()
    assert await harbour.statuses(service) == ["PENDING"]
    await harbour.free_lost(lost.id)
    await harbour.place()
    assert await harbour.statuses(service) == ["SCHEDULED"]
    assert await harbour.findings() == []


@on_sqlite
async def test_what_a_lost_task_may_still_hold_on_its_node_is_given_to_nobody_else(harbour: Harbour, clock: Clock):
    node_id = await harbour.node("n1", seen_at=clock(), slots={"gpu": 2})
    wants = Constraints(ports_wanted=1)
    service = await harbour.submit("web", constraints=wants, slots={"gpu": 1})
    [lost] = await harbour.run(service)
    loop = harbour.nodes_loop(TIMEOUT)
    clock.pass_seconds(TIMEOUT + 1)
    await loop.once()
    await harbour.replace_ended()
    await harbour.beat(node_id, clock())
    await harbour.place()
    [again] = await harbour.tasks(service)
    assert (lost.ports, again.ports) == ([["TCP", 2000]], [["TCP", 2001]])
    assert (lost.devices, again.devices) == ({"gpu": [[0, 1000]]}, {"gpu": [[1, 1000]]})
    await harbour.free_lost(lost.id)
    other = await harbour.submit("other", constraints=wants, slots={"gpu": 1})
    await harbour.place()
    [third] = await harbour.tasks(other)
    assert (third.ports, third.devices) == (lost.ports, lost.devices)
    assert await harbour.findings() == []


@on_sqlite
async def test_tasks_on_simulated_nodes_take_the_steps_that_an_agent_would_report(harbour: Harbour):
    await harbour.node("sim", simulated=True, cpu=2)
    await harbour.node("real", cpu=1)
    service = await harbour.submit("web", replicas=3)
    await harbour.place()
    loop = SimulationLoop(harbour.database, harbour.office)
    await loop.once()
    found = {t.node_name: t.status for t in await harbour.tasks(service)}
    assert found == {"sim": "RUNNING", "real": "SCHEDULED"}
    await harbour.stop(service)
    await loop.once()
    assert sorted(await harbour.statuses(service)) == ["CANCELLED", "CANCELLED", "TERMINATING"]
    assert not await loop.once()
    assert await harbour.findings() == []


@on_sqlite
async def test_what_is_ended_by_force_on_a_simulated_node_leaves_it(harbour: Harbour):
    node = await harbour.node("sim", simulated=True, cpu=2)
    service = await harbour.submit("web", cpu=2)
    await harbour.place()
    loop = SimulationLoop(harbour.database, harbour.office)
    await loop.once()
    await harbour.stop(service, force=True)
    assert await harbour.counters(node) == (0, 0, 2000)
    await loop.once()
    assert await harbour.counters(node) == (0, 0, 0)
    assert await harbour.findings() == []
