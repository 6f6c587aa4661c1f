"""A silent node is lost with its tasks, in time and not before."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import update

from mooring.clock import now as really_now
from mooring.controllers import nodes as nodes_loop
from mooring.controllers.simulation import SimulationLoop
from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads import Kind
from mooring.store.changes import Change
from mooring.store.tables import nodes
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

T = TaskStatus
TIMEOUT = 30


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
    clock.pass_seconds(1)
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
    clock.pass_seconds(TIMEOUT)
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
