"""Measurements of agents: checked, buffered, written as averages, and shown to users who may see the work."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import insert, select, update

from mooring import clock
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.measured_usage import MeasuredUse
from mooring.api.routes.tenancy import accounting
from mooring.model.errors import InvalidInput
from mooring.model.lifecycle import TaskStatus
from mooring.store.tables import task_usage, tasks, workloads
from mooring.telemetry import metrics
from mooring.wire.agents.agent_protocol import Attach, Desired, Measures, TaskMeasure
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import order
from tests.api.agents.test_hub import connected
from tests.api.world import World
from tests.store.accounting.test_measured_usage import running
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

START = datetime(2026, 3, 2, 9, tzinfo=clock.now().tzinfo)


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self, at: datetime) -> None:
        self._start = self.at = at

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - self._start).total_seconds()

    def move(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands(START)
    monkeypatch.setattr(clock, "source", hands)
    return hands


def session(*desired: DesiredTask, node_id: UUID | None = None) -> AgentSession:
    async def send(_: object) -> None:
        await asyncio.sleep(0)

    found = AgentSession(node_id or uuid4(), "n1", uuid4(), "", send)
    found.last_desired = Desired(term=1, tasks=list(desired))
    return found


def measure(task_id: UUID, cpu: int = 0, memory: int = 0, **fields: Any) -> TaskMeasure:
    return TaskMeasure(task_id=task_id, cpu_millicores=cpu, memory_bytes=memory, **fields)


def reported(*measures: TaskMeasure) -> Measures:
    return Measures(at=0.0, tasks=list(measures))


def test_only_measurements_of_the_nodes_own_tasks_are_accepted(hands: Hands):
    use, task, stopped = MeasuredUse(), order("x"), order("x", action="stop")
    use.take(session(task, stopped), reported(measure(task.task_id, 100), measure(stopped.task_id), measure(uuid4())))
    assert use.newest.keys() == {task.task_id}


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu": -1},
        {"memory": 2**60},
        {"read_bytes": -5},
        {"sent_bytes": 2**63 - 1},
        {"gpu_millidevices": -1},
        {"gpu_memory_bytes": 2**60},
    ],
)
def test_impossible_measures_are_refused(wrong: dict[str, int], hands: Hands):
    use, task = MeasuredUse(), order("x")
    with pytest.raises(InvalidInput):
        use.take(session(task), reported(measure(task.task_id, **wrong)))
    assert not use.newest


def test_counters_become_bytes_per_second(hands: Hands):
    use, task = MeasuredUse(), order("x")
    agent = session(task)
    use.take(agent, reported(measure(task.task_id, 100, 5, read_bytes=1000, sent_bytes=10)))
    assert use.newest[task.task_id].amounts == {"cpu": 100, "memory": 5}
    hands.move(10)
    use.take(agent, reported(measure(task.task_id, 200, 6, read_bytes=21_000, sent_bytes=0)))
    flows = {"read": 2000, "written": 0, "received": 0, "sent": 0}
    assert use.newest[task.task_id].amounts == {"cpu": 200, "memory": 6, **flows}


def test_a_node_s_sum_is_a_metric_without_names_of_tasks_and_goes_with_its_agent(hands: Hands):
    use, first, second = MeasuredUse(), order("x"), order("x")
    agent = session(first, second)
    use.take(agent, reported(measure(first.task_id, 300), measure(second.task_id, 400)), pool="lab")
    line = 'mooring_measured{node="n1",pool="lab",slot="cpu"} 700.0'
    assert line in metrics.text().decode()
    use.take(agent, reported(), pool="lab")
    assert 'mooring_measured{node="n1",pool="lab",slot="cpu"} 0.0' in metrics.text().decode()
    use.forget(agent, pool="lab")
    assert 'pool="lab"' not in metrics.text().decode()


async def written(harness: Harness) -> dict[str, tuple[int, int]]:
    rows = await harness.rows(select(task_usage))
    return {row.slot_name: (row.amount, row.seconds) for row in rows}


@on_sqlite
async def test_a_minute_of_measures_is_written_as_one_average(harness: Harness, hands: Hands):
    await harness.node("n1")
    task = await running(harness)
    use = MeasuredUse()
    agent = session(order("x", task_id=task.id), node_id=task.node_id)
    # the first speaks for the usual ten seconds: (10 * 1000 + 20 * 4000) / 30
    use.take(agent, reported(measure(task.id, 1000, 100)))
    hands.move(20)
    use.take(agent, reported(measure(task.id, 4000, 100, read_bytes=0)))
    use.forget(agent)
    await use.write(harness.database)
    assert await written(harness) == {"cpu": (3000, 30), "memory": (100, 30)}
    await use.write(harness.database)
    assert len(await harness.rows(select(task_usage))) == 2


@on_sqlite
async def test_the_use_of_gpus_is_written_also_while_they_are_idle(harness: Harness, hands: Hands):
    await harness.node("n1")
    task = await running(harness)
    use = MeasuredUse()
    agent = session(order("x", task_id=task.id), node_id=task.node_id)
    use.take(agent, reported(measure(task.id, 1000, 100, gpu_millidevices=0, gpu_memory_bytes=5000)))
    await use.write(harness.database)
    assert await written(harness) == {"cpu": (1000, 10), "memory": (100, 10), "gpu": (0, 10), "gpu-memory": (5000, 10)}


@on_sqlite
async def test_a_gap_between_measures_was_not_measured(harness: Harness, hands: Hands):
    await harness.node("n1")
    task = await running(harness)
    use = MeasuredUse()
    agent = session(order("x", task_id=task.id), node_id=task.node_id)
    for seconds in (0, 500):
        hands.move(seconds)
        use.take(agent, reported(measure(task.id, 1000, 100)))
    await use.write(harness.database)
    # the usual ten seconds, and twice as much for the second
    assert await written(harness) == {"cpu": (1000, 30), "memory": (100, 30)}
    assert use.newest
    hands.move(601)
    await use.write(harness.database)
    assert not use.newest


@on_sqlite
async def test_an_open_channel_keeps_its_task_active(harness: Harness, hands: Hands):
    await harness.node("n1")
    task = await running(harness)
    await idle_after(harness, task.workload_id, 600)
    use = MeasuredUse()
    with use.accessing(task.id):
        with use.accessing(task.id):
            pass
        hands.move(100)
        await use.write(harness.database, averages=False)
        assert await active_at(harness) == START + timedelta(seconds=100)
        hands.move(100)
    hands.move(100)
    await use.write(harness.database, averages=False)
    assert await active_at(harness) == START + timedelta(seconds=200)


@on_sqlite
async def test_a_way_into_a_task_is_activity(harness: Harness, hands: Hands):
    async with connected(harness) as agent:
        task = await running(harness)
        await idle_after(harness, task.workload_id, 600)
        async with agent.hub.open(task.id, agent.session.node_id, None, Attach()):
            hands.move(100)
            await agent.hub.measured.write(harness.database, averages=False)
            assert await active_at(harness) == START + timedelta(seconds=100)


@on_sqlite
async def test_work_and_traffic_are_activity_and_a_little_of_both_is_not(harness: Harness, hands: Hands):
    await harness.node("n1")
    task = await running(harness)
    await idle_after(harness, task.workload_id, 600)
    use = MeasuredUse()
    agent = session(order("x", task_id=task.id), node_id=task.node_id)
    for cpu, read, active in ((19, 0, None), (20, 0, 10), (5, 9000, 10), (5, 30_000, 30), (5, 30_500, 30)):
        hands.move(10)
        use.take(agent, reported(measure(task.id, cpu, 100, read_bytes=read)))
        await use.write(harness.database, averages=False)
        assert await active_at(harness) == (None if active is None else START + timedelta(seconds=active + 10))


async def idle_after(harness: Harness, workload_id: UUID, seconds: int) -> None:
    change = update(workloads).where(workloads.c.id == workload_id).values(idle_timeout_seconds=seconds)
    await harness.database.write(lambda c: c.execute(change))


async def active_at(harness: Harness) -> datetime | None:
    [row] = await harness.rows(select(tasks.c.active_at))
    found: datetime | None = row.active_at
    return found


async def test_measured_use_of_tasks_is_visible_to_users_who_may_see_them(world: World):
    admin, ada, ben = await world.admin(), await world.user("ada"), await world.user("ben")
    await world.add_node("n1")
    calm, busy = await run(world, ada, "calm"), await run(world, ada, "busy")
    known = world.services.measured
    known.take(session(order("x", task_id=busy)), reported(measure(busy, 1300, 1 << 30)))
    old = {"task_id": calm, "measured_at": clock.now() - timedelta(seconds=70), "slot_name": "cpu", "amount": 5}
    await world.services.database.write(lambda c: c.execute(insert(task_usage), [old]))
    answer = (await world.client.get("/api/usage/tasks", headers=ada)).json()
    assert [(task["workload"], task["cpu_millicores"]) for task in answer["tasks"]] == [("busy", 1300), ("calm", 5)]
    assert [task["age_seconds"] >= 70 for task in answer["tasks"]] == [False, True]
    assert answer["tasks"][0]["cpu_asked_millicores"] == 500
    assert await names(world, admin, sort="name") == ["busy", "calm"]
    assert await names(world, admin, name="calm", user="ada", pool="simulated") == ["calm"]
    assert await names(world, admin, user="ben") == await names(world, ben) == []
    assert await names(world, ada, limit=1) == ["busy"]


@on_sqlite
async def test_list_of_running_tasks_makes_only_those_that_it_shows(world: World, monkeypatch: pytest.MonkeyPatch):
    ada, made = await world.user("ada"), list[object]()
    await world.add_node("n1")
    for number in range(4):
        await run(world, ada, f"w{number}")
    make = accounting._task_use

    def noted(*given: Any) -> Any:
        made.append(given)
        return make(*given)

    monkeypatch.setattr(accounting, "_task_use", noted)
    answer = (await world.client.get("/api/usage/tasks", params={"limit": 2}, headers=ada)).json()
    assert ([task["workload"] for task in answer["tasks"]], answer["total"]) == (["w0", "w1"], 4)
    assert len(made) == 2


async def run(world: World, headers: dict[str, str], name: str) -> UUID:
    """The id of the only task of a workload that runs."""
    workload_id = await world.submit(headers, name=name)
    await world.move(workload_id, TaskStatus.SCHEDULED, TaskStatus.RUNNING)
    detail = (await world.client.get(f"/api/workloads/{workload_id}", headers=headers)).json()
    return UUID(detail["tasks"][0]["id"])


async def names(world: World, headers: dict[str, str], **query: Any) -> list[str]:
    answer = await world.client.get("/api/usage/tasks", params=query, headers=headers)
    assert answer.status_code == 200, answer.text
    return [task["workload"] for task in answer.json()["tasks"]]
