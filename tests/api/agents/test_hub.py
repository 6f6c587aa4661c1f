"""Messages to an agent: first the heartbeat interval and the health check, then its tasks; again when they change."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi import WebSocketDisconnect
from msgspec.structs import replace
from sqlalchemy import select, update

from mooring.api.agents import heartbeat_writer
from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.hub import AgentHub
from mooring.api.agents.secret_decryption import SecretDecryption
from mooring.api.serializers import task_view
from mooring.binding import preparing
from mooring.clock import now
from mooring.coordination.signals import Signal
from mooring.mirror.mirror import Mirror
from mooring.model.lifecycle import TaskStatus
from mooring.model.nodes.heartbeats import Pace
from mooring.model.policy.pools import Binding, HealthProgram, PoolPolicy
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.workload import Kind
from mooring.store.commit import holds
from mooring.store.commit.status_changes import Change
from mooring.store.control import background_tasks
from mooring.store.core.ids import new_id
from mooring.store.core.types import AnyRow
from mooring.store.nodes import nodes, pools, quarantine
from mooring.store.tables import holds as hold_rows
from mooring.store.tables import nodes as node_rows
from mooring.store.tables import volumes as volume_rows
from mooring.store.views.workloads import by_id, tasks_of
from mooring.wire.agents import agent_protocol as wire
from mooring.wire.agents.agent_protocol import (
    Desired,
    Facts,
    FromServer,
    Heartbeat,
    Hello,
    Images,
    LivingTask,
    Refused,
    Report,
    Strays,
    TaskReport,
    VolumesGone,
    Welcome,
)
from tests.store.databases import on_sqlite
from tests.store.harness import Harness
from tests.store.workloads.test_volumes import make as make_volume
from tests.store.workloads.test_volumes import remove as remove_volume
from tests.store.workloads.test_volumes import submit as submit_mounting

FACTS = Facts(
    hostname="n1",
    architecture="x86_64",
    capacity={"cpu": 8000, "memory": 2**30, "storage": 1000},
    runtimes=["process"],
    boot_id="b",
    agent_version="1",
)


class Connected:
    """An agent's end of the stream."""

    def __init__(self, hub: AgentHub, harness: Harness, node_id: UUID) -> None:
        self.hub = hub
        self.received: asyncio.Queue[FromServer] = asyncio.Queue()
        self.session = AgentSession(node_id, "n1", harness.pool.id, "", self.received.put)

    async def hears(self) -> FromServer:
        return await asyncio.wait_for(self.received.get(), timeout=30)

    async def orders(self) -> Desired:
        """The next ones."""
        while not isinstance(message := await self.hears(), Desired):
            pass
        return message


@asynccontextmanager
async def connected(
    harness: Harness,
    *,
    protocol: int = wire.PROTOCOL,
    pace: Pace | None = None,
    tasks: Sequence[LivingTask] = (),
    decryption: SecretDecryption | None = None,
    confidential: bool = True,
    address: str | None = None,
) -> AsyncIterator[Connected]:
    signal = Signal()
    harness.database.on_commit.append(signal.send)
    hub = AgentHub(harness.database, signal, pace, decryption=decryption)
    agent = Connected(hub, harness, await harness.node("n1"))
    agent.session.confidential = confidential
    facts = replace(FACTS, address=address)
    await hub.connect(agent.session, Hello(protocol=protocol, facts=facts, tasks=list(tasks)))
    loops = [asyncio.create_task(loop) for loop in (hub.follow(), hub.send_updates(agent.session))]
    try:
        yield agent
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


@on_sqlite
async def test_an_agent_is_welcomed_before_it_gets_orders(harness: Harness):
    async with connected(harness) as agent:
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        assert (welcome.protocol, welcome.heartbeat_seconds, welcome.health) == (wire.PROTOCOL, 5.0, None)
        assert isinstance(await agent.hears(), Desired)


@on_sqlite
async def test_an_address_that_floods_the_hub_with_connections_does_not_keep_agents_out(harness: Harness):
    hub = AgentHub(harness.database, Signal())
    flood = [asyncio.create_task(hub.hellos.seat("address 192.0.2.1", patient=True)) for _ in range(50)]
    await asyncio.sleep(0)
    agent = Connected(hub, harness, await harness.node("n1"))
    await asyncio.wait_for(hub.connect(agent.session, Hello(protocol=wire.PROTOCOL, facts=FACTS, tasks=[])), 30)
    assert agent.session.protocol == wire.PROTOCOL
    assert not all(each.done() for each in flood)
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


@on_sqlite
async def test_an_agent_of_the_version_before_gets_orders_alone(harness: Harness):
    async with connected(harness, protocol=wire.OLDEST_PROTOCOL) as agent:
        assert isinstance(await agent.hears(), Desired)


@on_sqlite
async def test_the_pause_between_heartbeats_grows_with_the_cluster(harness: Harness):
    for number in range(2, 9):
        await harness.node(f"n{number}")
    await harness.node("pretended", simulated=True)
    async with connected(harness, pace=Pace(least_seconds=1, most_per_second=2)) as agent:
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        assert welcome.heartbeat_seconds == 4.0


@on_sqlite
async def test_a_new_health_check_of_its_pool_is_sent_at_once(harness: Harness):
    async with connected(harness) as agent:
        assert isinstance(await agent.hears(), Welcome)
        assert isinstance(await agent.hears(), Desired)
        policy = PoolPolicy("locality", health=HealthProgram(("check", "--all"), interval_seconds=30))
        await harness.database.write(lambda c: pools.set_policy(c, "default", policy, now()))
        welcome = await agent.hears()
        assert isinstance(welcome, Welcome)
        expected = wire.HealthProgram(command=["check", "--all"], interval_seconds=30, timeout_seconds=10)
        assert welcome.health == expected


async def test_no_heartbeat_spoils_those_that_are_written_with_it(harness: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(heartbeat_writer, "_WRITE_SECONDS", 0.01)
    hub, problems = AgentHub(harness.database, Signal()), {"n1": "no\x00 \x1b[31mdisk\n", "n2": "no disk"}
    written = asyncio.Event()
    for name, problem in problems.items():
        agent = Connected(hub, harness, await harness.node(name))
        hub.beat(agent.session, Heartbeat(cpu_percent=1, memory_percent=2, disk_percent=3, problem=problem))
    await harness.database.write(lambda c: c.execute(update(node_rows).values(credential_hash="")))
    harness.database.on_commit.append(lambda _topics: written.set())
    writing = asyncio.create_task(hub.write_heartbeats())
    await asyncio.wait_for(written.wait(), timeout=30)
    writing.cancel()
    assert [row.reason for row in await harness.rows(select(node_rows).order_by(node_rows.c.name))] == [
        "no [31mdisk",
        "no disk",
    ]


@on_sqlite
async def test_failed_background_tasks_of_agents_are_reported_with_those_of_their_server(harness: Harness):
    failed = wire.BackgroundTaskState(
        name="cleanup",
        status="running",
        failures=2,
        error="OSError: no\x00 disk\n",
        failed_at=datetime(2026, 1, 2),  # noqa: DTZ001
    )
    async with connected(harness) as agent:
        hub = agent.hub
        hub.beat(agent.session, Heartbeat(cpu_percent=1, memory_percent=2, disk_percent=3, background=[failed] * 40))
        assert hub.agent_tasks(without=agent.session.node_id) == []
        await harness.database.write(
            lambda connection: background_tasks.report(connection, server="s1", states=hub.agent_tasks())
        )
        async with harness.database.read() as connection:
            (found,) = await background_tasks.reported(connection)
        assert (found.server, found.name, found.status, found.failures) == ("s1", "n1: cleanup", "running", 2)
        assert (found.error, found.failed_at) == ("OSError: no disk", None)
        hub.disconnect(agent.session)
        assert hub.agent_tasks() == []


@on_sqlite
async def test_a_heartbeat_notifies_the_loops_only_if_placement_on_its_node_may_change(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(heartbeat_writer, "_WRITE_SECONDS", 0.01)
    hub, signal = AgentHub(harness.database, Signal()), Signal()
    agent = Connected(hub, harness, await harness.node("n1"))
    await harness.database.write(lambda c: c.execute(update(node_rows).values(credential_hash="")))
    harness.database.on_commit.append(signal.send)
    writing = asyncio.create_task(hub.write_heartbeats())

    async def beat(cpu_percent: float, problem: str | None = None, ports: list[tuple[str, int]] | None = None) -> None:
        measured = Heartbeat(
            cpu_percent=cpu_percent, memory_percent=2, disk_percent=3, problem=problem, occupied_ports=ports or []
        )
        hub.beat(agent.session, measured)
        async with asyncio.timeout(30):
            while (await harness.node_row(agent.session.node_id)).cpu_percent != cpu_percent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    try:
        for number, problem in enumerate([None, None, "no disk", "no disk", "no disk", None, None], start=1):
            await beat(number, problem)
        assert signal.count == 2
        for number, ports in enumerate(([("TCP", 8000), ("X", 1), ("TCP", 0)], [("TCP", 8000)], []), start=10):
            await beat(number, ports=ports)
            assert (await harness.node_row(agent.session.node_id)).occupied_ports == ([["TCP", 8000]] if ports else [])
        assert signal.count == 4
    finally:
        writing.cancel()


@on_sqlite
async def test_a_task_that_the_database_does_not_know_closes_its_node_and_is_ended_when_an_admin_says_so(
    harness: Harness,
):
    async with connected(harness) as agent:
        await agent.orders()
        stray = LivingTask(task_id=new_id(), workload_name="forgotten")
        await agent.hub.strays(agent.session, Strays(tasks=[stray]))
        node = await harness.node_row(agent.session.node_id)
        assert (node.schedulable, node.reason) == (False, quarantine.REASON)
        await harness.database.write(lambda c: quarantine.confirm(c, "ada", now=now()))
        assert (await agent.orders()).end == [stray.task_id]
        await agent.hub.strays(agent.session, Strays(tasks=[]))
        assert (await agent.orders()).end == []


@on_sqlite
async def test_a_node_that_comes_with_unknown_tasks_is_closed_before_anything_new_can_come(harness: Harness):
    stray = LivingTask(task_id=new_id(), workload_name="forgotten")
    await harness.submit("new")
    async with connected(harness, tasks=[stray]) as agent:
        assert not (await harness.node_row(agent.session.node_id)).schedulable
        assert [decision.placements for decision in await harness.propose()] == [()]


@on_sqlite
async def test_a_task_that_was_moved_elsewhere_is_ended_at_once(harness: Harness):
    await harness.node("elsewhere")
    (task,) = await harness.run(await harness.submit("moved"))
    async with connected(harness, tasks=[LivingTask(task_id=task.id)]) as agent:
        await agent.orders()
        await agent.hub.strays(agent.session, Strays(tasks=[LivingTask(task_id=task.id)]))
        assert (await agent.orders()).end == [task.id]
        assert (await harness.node_row(agent.session.node_id)).schedulable


@on_sqlite
async def test_a_task_that_is_called_lost_behind_its_agents_back_is_stopped_and_free_when_nothing_is_left(
    harness: Harness,
):
    """The leader is at another server: what the agent said before, and says late, is no proof of an end."""
    async with connected(harness) as agent:
        (task,) = await harness.run(await harness.submit("service", memory=0))
        while not (await agent.orders()).tasks:
            pass
        await harness.apply(Change(task.id, TaskStatus.LOST, freed=False))
        while (orders := await agent.orders()).tasks[0].action != "stop":
            pass
        late = Report(number=1, tasks=[TaskReport(task_id=task.id, status="RUNNING")])
        await agent.hub.report(agent.session, late)
        assert await harness.counters(agent.session.node_id) == (0, 0, 1000)
        end = TaskReport(task_id=orders.tasks[0].task_id, status="CANCELLED", gone=True, code="stopped")
        for _ in range(2):
            await agent.hub.report(agent.session, Report(number=2, tasks=[end]))
        assert await harness.counters(agent.session.node_id) == (0, 0, 0)
        assert (await harness.task(task.id)).status == TaskStatus.LOST
        assert (await agent.orders()).tasks == []


@on_sqlite
async def test_an_agent_gets_its_tasks_although_an_older_stream_of_it_connected_later_and_ended(harness: Harness):
    """A frozen server to which an agent connects twice: either hello may be processed first."""
    async with connected(harness) as agent:
        await agent.orders()
        older = Connected(agent.hub, harness, agent.session.node_id)
        await agent.hub.connect(older.session, Hello(protocol=wire.PROTOCOL, facts=FACTS, tasks=[]))
        agent.hub.disconnect(older.session)
        await harness.submit("service", memory=0)
        await harness.place()
        while not (await agent.orders()).tasks:
            pass


@on_sqlite
async def test_only_agents_with_an_old_credential_are_dismissed(harness: Harness):
    async with connected(harness) as agent:
        await agent.orders()
        gone, joined_again = (Connected(agent.hub, harness, agent.session.node_id) for _ in range(2))
        gone.session.send = _to_nobody
        joined_again.session.credential_hash = "new"
        await agent.hub.connect(gone.session, Hello(protocol=wire.PROTOCOL, facts=FACTS, tasks=[]))
        await agent.hub.connect(joined_again.session, Hello(protocol=wire.PROTOCOL, facts=FACTS, tasks=[]))
        await harness.database.write(lambda c: nodes.renew_credential(c, agent.session.node_id, "new"))
        agent.hub.beat(agent.session, Heartbeat(cpu_percent=0, memory_percent=0, disk_percent=0))
        writing = asyncio.create_task(agent.hub.write_heartbeats())
        try:
            while not isinstance(await agent.hears(), Refused):
                pass
        finally:
            writing.cancel()
        assert joined_again.received.empty()


async def _to_nobody(_message: wire.FromServer) -> None:
    raise WebSocketDisconnect


@on_sqlite
async def test_stray_tasks_of_a_removed_node_are_deleted(harness: Harness):
    async with connected(harness) as agent:
        node_id = agent.session.node_id
        await harness.database.write(lambda c: nodes.remove(c, node_id, force=False, actor="test", now=now()))
        await agent.hub.strays(agent.session, Strays(tasks=[LivingTask(task_id=new_id())]))
        async with harness.database.read() as connection:
            assert await quarantine.all_tasks(connection) == []


@on_sqlite
async def test_agents_that_connect_at_once_are_admitted_a_few_at_a_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    hub = AgentHub(harness.database, Signal())
    inside, most = 0, 0

    async def write(_: object) -> list[UUID]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return []

    monkeypatch.setattr(harness.database, "write", write)
    agents = [Connected(hub, harness, uuid4()) for _ in range(200)]
    await asyncio.gather(*(hub.connect(agent.session, Hello(protocol=wire.PROTOCOL, facts=FACTS)) for agent in agents))
    assert most == 8
    assert all(agent.session.changed.is_set() for agent in agents)


@on_sqlite
async def test_a_stray_that_a_restored_database_takes_for_waiting_is_ended_as_soon_as_it_is_cancelled(
    harness: Harness,
):
    async with connected(harness) as agent:
        await agent.orders()
        over, waits = await harness.submit("over"), await harness.submit("waits")
        await harness.stop(over)
        ids = [(await harness.tasks(each))[0].id for each in (over, waits)]
        await agent.hub.strays(agent.session, Strays(tasks=[LivingTask(task_id=task_id) for task_id in ids]))
        assert (await agent.orders()).end == ids[:1]
        await harness.stop(waits)
        assert (await agent.orders()).end == sorted(ids)


async def test_the_name_of_a_stray_has_no_signs_that_a_database_refuses_or_a_terminal_obeys(harness: Harness):
    stray = LivingTask(task_id=new_id(), workload_name="we\x00b\x1b[2J")
    async with connected(harness, tasks=[stray]):
        async with harness.database.read() as connection:
            (stored,) = await quarantine.all_tasks(connection)
        assert stored.workload_name == "web[2J"


async def test_a_task_is_placed_on_a_node_that_reported_its_image(harness: Harness):
    hub, mirror = AgentHub(harness.database, Signal()), Mirror(harness.database)
    agents = {name: Connected(hub, harness, await harness.node(name)) for name in ("a", "b", "c")}
    await mirror.load()
    generation = (await harness.node_row(agents["c"].session.node_id)).generation
    for name, image in (("b", "docker.io/library/nginx:latest"), ("c", "ghcr.io/org/tool:2")):
        for _ in range(2):
            await hub.images(agents[name].session, Images(images={image: 50_000_000}))
        received = await harness.feed(agents[name].session.node_id)
        assert [event.kind for event in received].count("images") == 1
    # What was decided for the node meanwhile stays good.
    assert (await harness.node_row(agents["c"].session.node_id)).generation == generation
    await mirror.follow()
    assert mirror.cluster.image_sizes("ghcr.io/org/tool:2") == {
        mirror.cluster.row_of(agents["c"].session.node_id): 50_000_000
    }

    for image, node in (("nginx", "b"), ("ghcr.io/org/tool:2", "c")):
        workload = await harness.submit(
            image.rpartition("/")[2].partition(":")[0], constraints=Constraints(images=(image,))
        )
        await harness.place()
        assert [task.node_name for task in await harness.tasks(workload)] == [node]


async def test_images_of_a_node_that_was_removed_are_no_error(harness: Harness):
    hub = AgentHub(harness.database, Signal())
    await hub.images(Connected(hub, harness, uuid4()).session, Images(images={"localhost/a:1": 1}))


async def test_the_progress_of_an_image_pull_is_shown_until_the_task_runs(harness: Harness):
    async with connected(harness) as agent:
        workload = await harness.submit("web", memory=0)
        await harness.place()
        (task,) = await harness.tasks(workload)

        async def received(**report: Any) -> AnyRow:
            await agent.hub.report(agent.session, Report(number=1, tasks=[TaskReport(task_id=task.id, **report)]))
            return await harness.task(task.id)

        assert (await received(status="PREPARING")).reason is None
        for words in ("pulling nginx:1.27", "pulling nginx:1.27: 34 of 80 MB"):
            assert (await received(status="PREPARING", reason=words)).reason["message"] == words
        kinds = [event.kind for event in await harness.feed(task.id)]
        running = await received(status="RUNNING", digests={"main": "sha256:1"}, address="10.0.0.7")
        assert running.reason is None
        assert kinds.count("PREPARING") == 1
        late = await received(status="PREPARING", reason="pulling nginx:1.27: 79 of 80 MB")
        assert (late.status, late.reason) == ("RUNNING", None)
        async with harness.database.read() as connection:
            row = await by_id(connection, workload)
            assert row is not None
            (shown,) = [task_view(task) for task in await tasks_of(connection, row)]
        assert (shown.digests, shown.address) == ({"main": "sha256:1"}, "10.0.0.7")


async def test_a_value_that_the_database_cannot_hold_does_not_block_the_reports_of_a_node(harness: Harness):
    async with connected(harness) as agent:
        tasks = [(await harness.tasks(await harness.submit(name, memory=0)))[0] for name in ("a", "b", "c")]
        await harness.place()
        odd = wire.LastExit(code="killed\0", reason="killed\nby\0 a signal", exit_code=2**40)
        reports = [
            TaskReport(task_id=tasks[0].id, status="RUNNING", restarts=2**70, crashes=-(2**70), last_exit=odd),
            TaskReport(
                task_id=tasks[1].id, status="FAILED", gone=True, exit_code=2**40, code="x\0", reason="no\0\nluck"
            ),
            TaskReport(task_id=tasks[2].id, status="RUNNING"),
        ]
        await agent.hub.report(agent.session, Report(number=1, tasks=reports))
        running, failed, other = [await harness.task(task.id) for task in tasks]
        assert (running.status, running.restarts, running.crashes) == ("RUNNING", 2**31 - 1, 0)
        assert (failed.status, failed.exit_code) == ("FAILED", 2**31 - 1)
        assert (failed.reason["code"], failed.reason["message"]) == ("x", "no luck")
        assert other.status == "RUNNING"


async def test_progress_of_several_tasks_of_a_node_is_written_at_once(harness: Harness):
    async with connected(harness) as agent:
        workload = await harness.submit("web", replicas=2, memory=0)
        await harness.place()
        words = {task.id: f"pulling nginx: {task.index} of 80 MB" for task in await harness.tasks(workload)}
        received = [TaskReport(task_id=task_id, status="PREPARING", reason=reason) for task_id, reason in words.items()]
        await agent.hub.report(agent.session, Report(number=1, tasks=received))
        assert {task.id: task.reason["message"] for task in await harness.tasks(workload)} == words


async def test_a_hold_is_extended_while_its_node_pulls_the_image(harness: Harness):
    async with connected(harness) as agent:
        workload = await harness.submit("web", memory=0)
        await harness.commit(*await harness.propose(), mode=Binding.TWO_PHASE)
        (task,) = await harness.tasks(workload)
        soon = now() + timedelta(seconds=5)
        await harness.database.write(lambda c: c.execute(update(hold_rows).values(expires_at=soon)))

        async def ends_after(heard: int) -> datetime:
            report = TaskReport(task_id=task.id, status="PREPARING", reason="pulling nginx:1.27", heard=heard)
            await agent.hub.report(agent.session, Report(number=1, tasks=[report]))
            async with harness.database.read() as connection:
                [hold] = await holds.by_workload(connection, workload)
            return hold.expires_at

        assert await ends_after(0) == soon
        assert await ends_after(1) > soon
        held = await harness.task(task.id)
        assert (held.status, held.reason["message"]) == ("RESERVED", "pulling nginx:1.27")
        await harness.database.write(lambda c: holds.mark_prepared(c, [task.id], now()))
        await harness.database.write(lambda c: preparing.settle(c, workload, term=harness.leadership.term, now=now()))
        admitted = await harness.task(task.id)
        assert (admitted.status, admitted.reason) == ("SCHEDULED", None)


async def test_main_is_ordered_to_start_when_the_others_run_and_knows_where_they_are(harness: Harness):
    async with connected(harness, address="10.0.0.1") as agent:
        other = Connected(agent.hub, harness, await harness.node("n2"))
        session = await harness.submit(
            "train",
            kind=Kind.SESSION,
            replicas=2,
            memory=0,
            gang=True,
            max_per_node=1,
            constraints=Constraints(designated=frozenset({"n1"})),
        )
        await harness.place()
        main, sub = await harness.tasks(session)
        assert (main.node_name, sub.node_name) == ("n1", "n2")
        while not (orders := await agent.orders()).tasks:
            pass
        assert [(task.action, [peer.address for peer in task.peers]) for task in orders.tasks] == [
            ("prepare", ["10.0.0.1", None])
        ]
        running = TaskReport(task_id=sub.id, status="RUNNING", address="10.88.0.7")
        await other.hub.report(other.session, Report(number=1, tasks=[running]))
        while (orders := await agent.orders()).tasks[0].action != "run":
            pass
        assert [peer.name for peer in orders.tasks[0].peers] == ["main", "sub1"]


async def test_an_agent_is_ordered_to_delete_a_removed_volume_until_it_confirms(harness: Harness):
    async with connected(harness) as agent:
        assert (await agent.orders()).removed_volumes == []
        data = await make_volume(harness, "data", size=1000)
        job = await submit_mounting(harness, "job", data)
        [task] = await harness.run(job)
        await harness.stop(job)
        await harness.move(task, TaskStatus.CANCELLED, freed=True)
        await remove_volume(harness, "data")
        while not (removed := (await agent.orders()).removed_volumes):
            pass
        [received] = removed
        assert (received.volume_id, received.project_id, received.path) == (data.id, harness.principal.project_id, None)
        await agent.hub.volumes_gone(agent.session, VolumesGone(volumes=[data.id, new_id()]))
        assert (await agent.orders()).removed_volumes == []
        assert await harness.rows(select(volume_rows)) == []
