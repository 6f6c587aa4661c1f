"""The agent against a server that speaks the protocol: joining, orders, reports, reconnecting, logs."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import msgspec
import pytest

from mooring.agent.agent import Agent
from mooring.agent.connection.stream import AgentRefused, Connection
from mooring.agent.node.volumes import VolumeRemovals
from mooring.agent.options import Options
from mooring.agent.runtimes.contract import Observed, Progress
from mooring.agent.runtimes.process.runtime import ProcessRuntime
from mooring.model.errors import Conflict
from mooring.wire.agents.agent_protocol import (
    PROTOCOL,
    HealthProgram,
    Heartbeat,
    Hello,
    LivingTask,
    LogCancel,
    Measures,
    Refused,
    Strays,
    Welcome,
)
from mooring.wire.agents.desired_tasks import DesiredTask, EndWarning
from tests.agent.builders import DEADLINE_SECONDS, container, eventually, order, owner
from tests.agent.conftest import keep_cgroup_tidy
from tests.agent.fake_server import FakeServer


def make(server: FakeServer, root: Path, *, join_token: str | None = "join-me", **options: Any) -> Agent:
    settings = Options(**{"scan_seconds": 0.5, "engine": "none", **options})
    return Agent([server.url], root, "box", join_token=join_token, options=settings)


@asynccontextmanager
async def running(agent: Agent, *, terminate: bool = True) -> AsyncIterator[Agent]:
    life = asyncio.create_task(agent.run())
    try:
        await eventually(lambda: agent.connected.is_set() or life.done(), "the agent's connection")
        yield agent
    finally:
        agent.stop(terminate=terminate)
        await life


def welcome(**fields: Any) -> Welcome:
    return Welcome(protocol=PROTOCOL, server_version="0.1.0", **fields)


def stopping(task: DesiredTask, grace_seconds: int = 1) -> DesiredTask:
    return msgspec.structs.replace(task, action="stop", grace_seconds=grace_seconds)


async def test_an_agent_joins_with_its_token_and_reports_the_facts_of_the_machine(
    server: FakeServer, node_folder: Path
):
    async with running(make(server, node_folder)) as agent:
        assert agent.node_id == server.node_id
        (join,) = server.joins
        (hello,) = server.of(Hello)
        assert (join.token, join.name) == ("join-me", "box")
        assert hello.facts.capacity["cpu"] >= 1000
        assert hello.facts.runtimes == ["process"]
        assert hello.facts.enforces["storage"] == "none"
        assert hello.facts.multi_tenant is (os.getuid() == 0)


async def test_the_credential_is_private_to_the_agent_and_reused(server: FakeServer, node_folder: Path):
    async with running(make(server, node_folder)):
        assert stat.S_IMODE((node_folder / "credential.json").stat().st_mode) == 0o600
    async with running(make(server, node_folder, join_token=None)):
        assert len(server.joins) == 1
        assert server.connections == 2


async def test_a_spent_token_ends_the_agent_with_the_servers_words(server: FakeServer, node_folder: Path):
    with pytest.raises(AgentRefused, match="the token is spent"):
        await make(server, node_folder, join_token="old").run()


async def test_an_agent_that_never_joined_needs_a_token(server: FakeServer, node_folder: Path):
    with pytest.raises(AgentRefused, match="join token"):
        await make(server, node_folder, join_token=None).run()


async def test_a_refused_credential_ends_the_agent_unless_it_has_a_new_token(server: FakeServer, node_folder: Path):
    async with running(make(server, node_folder)):
        pass
    server.credential = "another"
    with pytest.raises(AgentRefused, match="join again"):
        await make(server, node_folder, join_token=None).run()
    server.tokens.add("second")
    async with running(make(server, node_folder, join_token="second")) as agent:
        assert agent.connected.is_set()


async def test_a_node_that_the_server_refuses_ends(server: FakeServer, node_folder: Path):
    life = asyncio.create_task(make(server, node_folder).run())
    await eventually(lambda: server.of(Hello))
    await server.say(Refused(code="node-removed", message="this node was removed"))
    with pytest.raises(AgentRefused, match="this node was removed"):
        await life


async def test_a_second_agent_on_the_same_folder_is_refused(server: FakeServer, node_folder: Path):
    async with running(make(server, node_folder)):
        with pytest.raises(Conflict, match="another agent"):
            await make(server, node_folder).run()


async def test_heartbeats_report_measured_use_and_the_last_one_the_departure(server: FakeServer, node_folder: Path):
    async with running(make(server, node_folder)):
        await eventually(lambda: len(server.of(Heartbeat)) >= 2)
        beat = server.of(Heartbeat)[-1]
        assert 0 < beat.memory_percent <= 100
        assert not beat.stopping
    assert server.of(Heartbeat)[-1].stopping


async def test_a_nearly_full_disk_is_reported_as_a_problem(server: FakeServer, node_folder: Path):
    async with running(make(server, node_folder, disk_full_percent=0.0)):
        beat = await eventually(lambda: server.of(Heartbeat))
        assert beat[0].problem.startswith("disk nearly full")


async def test_heartbeats_come_as_often_as_the_server_says(server: FakeServer, node_folder: Path):
    server.welcome = welcome(heartbeat_seconds=300)
    async with running(make(server, node_folder)):
        await eventually(lambda: server.of(Heartbeat))
        await server.say(welcome(heartbeat_seconds=0.05))
        await eventually(lambda: len(server.of(Heartbeat)) >= 4)


async def test_agents_spread_their_heartbeats_after_a_change_of_the_interval(server: FakeServer, node_folder: Path):
    server.welcome = welcome(heartbeat_seconds=3_000_000)
    async with running(make(server, node_folder)):
        await eventually(lambda: server.of(Heartbeat))
        await server.say(welcome(heartbeat_seconds=3_000_001))
        await server.want(task := order("true"))
        await eventually(server.ended(task))
        assert len(server.of(Heartbeat)) == 1


async def test_an_agent_reports_its_tasks_at_the_interval_of_the_server(server: FakeServer, node_folder: Path):
    server.welcome = msgspec.structs.replace(server.welcome, measure_seconds=0.02)
    task = order("sleep", "60")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(
            lambda: any(task.task_id == m.task_id for received in server.of(Measures) for m in received.tasks)
        )
        count = len(server.of(Measures))
        await eventually(lambda: len(server.of(Measures)) > count, "the same again although nothing changed")


async def test_a_server_that_does_not_want_measures_is_sent_none(server: FakeServer, node_folder: Path):
    task = order("sleep", "60")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(lambda: server.statuses(task)[-1:] == ["RUNNING"])
        before = len(server.of(Heartbeat))
        await eventually(lambda: len(server.of(Heartbeat)) > before + 1)
        assert server.of(Measures) == []


async def test_the_result_of_the_health_check_is_reported_at_once(
    server: FakeServer, node_folder: Path, tmp_path: Path
):
    broken = tmp_path / "broken"
    broken.touch()
    command = ["sh", "-c", f"[ ! -e {broken} ] || {{ echo 'gpu 3 is gone'; exit 1; }}"]
    program = HealthProgram(command=command, interval_seconds=0.05, timeout_seconds=60)
    server.welcome = welcome(heartbeat_seconds=300, health=program)

    def received() -> list[str | None]:
        return [beat.problem for beat in server.of(Heartbeat)]

    async with running(make(server, node_folder)):
        await eventually(lambda: received()[-1:] == ["health program: gpu 3 is gone"])
        assert None not in received()
        broken.unlink()
        await eventually(lambda: received()[-1:] == [None])
        # Another program has to pass first; without one there is nothing to pass.
        slow = HealthProgram(command=["sleep", "60"], interval_seconds=1, timeout_seconds=60)
        await server.say(welcome(heartbeat_seconds=300, health=slow))
        await eventually(lambda: received()[-1:] == ["health program: has not succeeded yet"])
        await server.say(welcome(heartbeat_seconds=300))
        await eventually(lambda: received()[-1:] == [None])


async def test_an_agent_of_a_server_that_is_gone_goes_to_another(server: FakeServer, node_folder: Path):
    other = FakeServer()
    other.node_id = server.node_id
    await other.start()
    async with running(make(server, node_folder)):
        pass
    server.heard.clear()
    agent = Agent([server.url, other.url], node_folder, "box", options=Options(scan_seconds=0.5, engine="none"))
    async with running(agent):
        first, second = (server, other) if server.of(Hello) else (other, server)
        await first.stop()
        await eventually(lambda: second.of(Hello) and agent.connected.is_set(), "the other server")
    await other.stop()


async def test_a_desired_task_is_prepared_run_and_reported_to_its_end(server: FakeServer, node_folder: Path):
    task = order("python3", "-c", "print('hello')")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        assert server.statuses(task) == ["PREPARING", "RUNNING", "SUCCEEDED"]
        last = server.last(task)
        assert last is not None
        assert last.exit_code == 0


async def test_a_failure_is_reported_with_code_and_reason(server: FakeServer, node_folder: Path):
    task = order("sh", "-c", "exit 3")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        last = server.last(task)
        assert last is not None
        assert (last.status, last.exit_code, last.reason) == ("FAILED", 3, "exited with code 3")


async def test_a_task_that_may_not_run_here_fails_with_the_reason(server: FakeServer, node_folder: Path):
    picture = order(containers=[container("true", image="debian")])
    tasks = [picture]
    if os.getuid() == 0:
        tasks.append(order("true", owner=owner(os_user="root")))
    async with running(make(server, node_folder)):
        await server.want(*tasks)
        for task in tasks:
            await eventually(server.ended(task))
        last = server.last(picture)
        assert last is not None
        assert (last.status, last.code) == ("FAILED", "runtime-missing")
        if os.getuid() == 0:
            refused = server.last(tasks[1])
            assert refused is not None
            assert (refused.status, refused.code) == ("FAILED", "identity-refused")


async def test_a_task_to_stop_is_stopped_and_reported_as_cancelled(server: FakeServer, node_folder: Path):
    task = order("sleep", "1000")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
        await server.want(stopping(task))
        await eventually(server.ended(task))
        assert server.statuses(task)[-1] == "CANCELLED"


async def test_a_task_to_stop_that_was_never_here_is_cancelled_at_once(server: FakeServer, node_folder: Path):
    task = stopping(order("sleep", "1000"))
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        assert server.statuses(task) == ["CANCELLED"]


async def test_an_unlisted_task_continues_until_the_server_ends_it(server: FakeServer, node_folder: Path):
    task = order("sleep", "1000", grace_seconds=1, workload_name="forgotten")
    stray = LivingTask(task_id=task.task_id, workload_name="forgotten")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
        await server.want()
        await eventually(lambda: server.of(Strays))
        assert server.of(Strays) == [Strays(tasks=[stray])]
        # The next request fails at once.
        await server.close_channels()
        await eventually(lambda: len(server.of(Strays)) == 2)
        assert [hello.tasks for hello in server.of(Hello)] == [[], [stray]]
        assert not server.ended(task)()
        await server.want(end=[task.task_id])
        await eventually(server.ended(task))
        await eventually(lambda: server.of(Strays)[-1] == Strays(tasks=[]))


async def test_tasks_continue_under_a_server_that_does_not_know_the_node(server: FakeServer, node_folder: Path):
    task = order("sleep", "1000", grace_seconds=1)
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
        server.refusal = Refused(code="node-unknown", message="the database does not know such a node")
        await server.close_channels()
        before = server.connections
        await eventually(lambda: server.connections > before + 1)
        server.refusal = None
        await eventually(lambda: len(server.of(Hello)) == 2)
        assert [alive.task_id for alive in server.of(Hello)[-1].tasks] == [task.task_id]


async def test_orders_of_a_deposed_leader_are_refused_also_after_a_restart(server: FakeServer, node_folder: Path):
    stored, late, marker = order("sleep", "1000"), order("sleep", "1000"), order("true")
    server.term = 5
    async with running(make(server, node_folder), terminate=False):
        await server.want(stored)
        await eventually(lambda: "RUNNING" in server.statuses(stored))
    server.desired = [stored]
    async with running(make(server, node_folder)):
        await server.want(late, term=4)
        await server.want(stored, marker, term=5)
        await eventually(server.ended(marker))
        assert server.statuses(late) == []
        assert server.statuses(stored)[-1] == "RUNNING"


async def test_unacknowledged_reports_are_repeated_after_a_reconnect(server: FakeServer, node_folder: Path):
    task = order("true")
    async with running(make(server, node_folder)):
        server.answers_reports = False
        await server.want(task)
        await eventually(server.ended(task))
        server.heard.clear()
        server.answers_reports = True
        await server.close_channels()
        await eventually(server.ended(task))
        assert server.statuses(task) == ["RUNNING", "SUCCEEDED"]
        assert server.connections == 2


async def test_an_acknowledged_end_is_not_said_again_nor_started_again(server: FakeServer, node_folder: Path):
    task, marker = order("sh", "-c", "echo once"), order("true")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        await eventually((node_folder / "tasks" / str(task.task_id) / "acknowledged").exists)
        await server.want()
        server.heard.clear()
        await server.close_channels()
        await eventually(lambda: server.of(Hello))
        await server.want(marker)
        await eventually(server.ended(marker))
        assert server.reports(task) == []
        await server.want(task)
        await eventually(server.ended(task))
        log = node_folder / "tasks" / str(task.task_id) / "output-0.log"
        assert log.read_text() == "once\n"


async def test_an_agent_waits_for_a_server_that_is_not_there_yet(node_folder: Path):
    late = FakeServer()
    # A bound port that no server listens on.
    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    late.url = f"http://127.0.0.1:{place.getsockname()[1]}"
    keep_cgroup_tidy(late.node_id)
    agent = make(late, node_folder)
    life = asyncio.create_task(agent.run())
    await asyncio.sleep(0.1)
    await late.start(place)
    await eventually(agent.connected.is_set)
    agent.stop()
    await life
    await late.stop()


async def test_an_agent_that_cannot_reach_its_server_can_be_stopped(node_folder: Path):
    agent = Agent(["http://127.0.0.1:9"], node_folder, "box", join_token="any")
    life = asyncio.create_task(agent.run())
    await asyncio.sleep(0.05)
    agent.stop()
    await life


async def test_an_agent_that_lost_its_server_can_be_stopped(server: FakeServer, node_folder: Path):
    agent = make(server, node_folder)
    async with asyncio.timeout(DEADLINE_SECONDS), running(agent, terminate=False):
        await server.stop()
        await eventually(lambda: not agent.connected.is_set(), "the end of the connection")
        # The stop request arrives while it waits for the next reconciliation.
        await asyncio.sleep(0.1)


async def test_tasks_outlive_the_agent_and_end_under_the_next_one(server: FakeServer, node_folder: Path):
    task = order("sh", "-c", "echo once; while [ ! -e go ]; do sleep 0.05; done; exit 4")
    async with running(make(server, node_folder), terminate=False):
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
    server.heard.clear()
    async with running(make(server, node_folder)):
        await eventually(lambda: "RUNNING" in server.statuses(task))
        (node_folder / "work" / str(task.task_id) / "go").touch()
        await eventually(server.ended(task))
        last = server.last(task)
        assert last is not None
        assert last.exit_code == 4


async def test_an_agent_that_ends_with_its_tasks_reports_them_first(server: FakeServer, node_folder: Path):
    task = order("sleep", "1000", grace_seconds=1)
    async with running(make(server, node_folder), terminate=True):
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
    last = server.last(task)
    assert last is not None
    assert (last.status, last.code, last.gone) == ("FAILED", "agent-stopped", True)


def whole(server: FakeServer, request_id: Any) -> Callable[[], bool]:
    return lambda: any(chunk.end for chunk in server.chunks(request_id))


def text(server: FakeServer, request_id: Any) -> str:
    return b"".join(chunk.data for chunk in server.chunks(request_id)).decode()


async def test_a_task_is_warned_of_its_end_though_the_agent_has_left(server: FakeServer, node_folder: Path):
    task = order("sh", "-c", "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.02; done")
    folder = node_folder / "tasks" / str(task.task_id)
    log = folder / "output-0.log"
    async with running(make(server, node_folder), terminate=False):
        await server.want(task)
        await eventually(lambda: log.exists() and log.read_bytes(), "the first output")
        await server.want(msgspec.structs.replace(task, warning=EndWarning(at=time.time() + 0.5, signal="USR1")))
        await eventually((folder / "warning.json").exists, "the order in the task's folder")
    await eventually((folder / "exit.json").exists, "the end of the task")
    assert log.read_text().split().count("warned") == 1
    async with running(make(server, node_folder)):
        await eventually(server.ended(task))
    assert server.statuses(task)[-1] == "SUCCEEDED"


async def test_the_output_of_a_task_is_sent_when_asked_for(server: FakeServer, node_folder: Path):
    task = order("seq", "1", "30000")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        everything = await server.log(task)
        last = await server.log(task, tail=2)
        await eventually(whole(server, everything))
        await eventually(whole(server, last))
        assert text(server, everything) == "".join(f"{number}\n" for number in range(1, 30001))
        assert all(len(chunk.data) <= 64 * 1024 for chunk in server.chunks(everything))
        assert text(server, last) == "29999\n30000\n"


async def test_output_is_followed_until_the_task_ends(server: FakeServer, node_folder: Path):
    task = order("sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(lambda: server.statuses(task))
        request = await server.log(task, follow=True)
        await eventually(lambda: text(server, request) == "one\n")
        (node_folder / "work" / str(task.task_id) / "go").touch()
        await eventually(whole(server, request))
        assert text(server, request) == "one\ntwo\n"


async def test_following_can_be_called_off(server: FakeServer, node_folder: Path):
    task = order("sh", "-c", "echo one; sleep 1000", grace_seconds=1)
    async with running(make(server, node_folder)) as agent:
        await server.want(task)
        await eventually(lambda: "RUNNING" in server.statuses(task))
        request = await server.log(task, follow=True)
        await eventually(lambda: text(server, request) == "one\n")
        await server.say(LogCancel(request_id=request))
        await eventually(lambda: len(agent._log_streams) == 0)


async def test_output_that_is_not_here_is_answered_with_an_error(server: FakeServer, node_folder: Path):
    task = order("true")
    async with running(make(server, node_folder)):
        await server.want(task)
        await eventually(server.ended(task))
        unknown, container_missing = await server.log(order("true")), await server.log(task, container="other")
        for request in (unknown, container_missing):
            await eventually(whole(server, request))
            assert "has no stored output" in (server.chunks(request)[-1].error or "")


async def test_a_runtime_of_another_package_is_found_and_used(server: FakeServer, node_folder: Path, monkeypatch):
    class Boxes:
        name = "container"
        enforces = {"memory": "cgroup"}  # noqa: RUF012

        def __init__(self) -> None:
            self.seen: dict[Any, Observed] = {}

        async def open(self) -> None: ...

        async def start(self, task: DesiredTask) -> None:
            self.seen[task.task_id] = Observed(status="SUCCEEDED", gone=True, ran=True, exit_code=0)
            context.changed()

        async def stop(self, *_: Any) -> None: ...

        async def observe(self, listed: Any) -> dict[Any, Observed]:
            return dict(self.seen)

        async def acknowledge(self, task_id: Any) -> None:
            self.seen[task_id] = replace(self.seen[task_id], acknowledged=True)

        async def tidy(self, keep: Any) -> None: ...

        async def logs(self, *_: Any) -> AsyncIterator[bytes]:
            yield b"from a box"

        async def close(self) -> None: ...

    context: Any = None

    class Point:
        name = "container"

        def load(self) -> Callable[[Any], Boxes]:
            def factory(given: Any) -> Boxes:
                nonlocal context
                context = given
                return Boxes()

            return factory

    monkeypatch.setattr("mooring.agent.runtimes.contract.entry_points", lambda group: [Point()])
    task = order(task_id=uuid4(), containers=[container("true", image="debian")])
    async with running(make(server, node_folder)):
        assert server.of(Hello)[0].facts.runtimes == ["container", "process"]
        await server.want(task)
        await eventually(server.ended(task))
        assert server.statuses(task) == ["PREPARING", "RUNNING", "SUCCEEDED"]
        request = await server.log(task)
        await eventually(whole(server, request))
        assert text(server, request) == "from a box"


async def test_a_slow_preparation_delays_no_other_task(
    server: FakeServer, node_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    fetched, begun, given_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(_runtime: ProcessRuntime, _task: DesiredTask) -> None:
        begun.set()
        try:
            await fetched.wait()
        except asyncio.CancelledError:
            given_up.set()
            raise

    heard = 0

    def progress(_runtime: ProcessRuntime, _task: DesiredTask) -> Progress | None:
        return Progress("fetching", heard) if heard else None

    monkeypatch.setattr(ProcessRuntime, "prepare", slowly)
    monkeypatch.setattr(ProcessRuntime, "progress", progress, raising=False)
    slow, quick = order("true", action="prepare"), order("true")
    async with running(make(server, node_folder)):
        await server.want(slow, quick)
        await eventually(server.ended(quick))
        assert begun.is_set()
        assert server.statuses(slow) == []
        for heard in (1, 2):
            await server.want(slow)
            await eventually(lambda: (received := server.last(slow)) is not None and received.heard == heard)  # noqa: B023
        await server.want()
        await eventually(given_up.is_set)
        fetched.set()
        await server.want(slow)
        await eventually(lambda: server.statuses(slow)[-1] == "PREPARED")
        assert server.statuses(slow).count("PREPARED") == 1


async def test_a_runtime_that_fails_at_one_task_holds_up_no_other(
    server: FakeServer, node_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    start, stop = ProcessRuntime.start, ProcessRuntime.stop
    bad, good, other = (order("sleep", "1000") for _ in range(3))

    async def failing_start(runtime: ProcessRuntime, task: DesiredTask) -> None:
        if task.task_id == bad.task_id:
            raise ValueError("a mistake in the runtime")
        await start(runtime, task)

    async def failing_stop(runtime: ProcessRuntime, task_id: UUID, *how: Any) -> None:
        if task_id == good.task_id:
            raise OSError(errno.ENOSPC, "No space left on device")
        await stop(runtime, task_id, *how)

    monkeypatch.setattr(ProcessRuntime, "start", failing_start)
    async with running(make(server, node_folder)):
        await server.want(bad, good, other)
        await eventually(server.ended(bad))
        await eventually(lambda: all("RUNNING" in server.statuses(task) for task in (good, other)))
        last = server.last(bad)
        assert last is not None
        assert last.code == "start-failed"
        with monkeypatch.context() as patched:
            patched.setattr(ProcessRuntime, "stop", failing_stop)
            await server.want(stopping(good), stopping(other))
            await eventually(server.ended(other))
        await eventually(server.ended(good))


async def test_a_stream_that_breaks_while_a_ping_is_answered_is_opened_again(
    server: FakeServer, node_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    really = aiohttp.ClientWebSocketResponse.receive
    broken = False

    async def receive(self: aiohttp.ClientWebSocketResponse, timeout: float | None = None) -> Any:
        nonlocal broken
        frame = await really(self, timeout)
        if server.connections == 1 and not broken and server.of(Heartbeat):
            broken = True
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        return frame

    monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "receive", receive)
    async with running(make(server, node_folder)) as agent:
        await eventually(lambda: server.of(Heartbeat), "a heartbeat")
        await server.want()
        await eventually(lambda: server.connections == 2 and agent.connected.is_set(), "another stream")


async def test_heartbeats_report_background_tasks_that_failed_and_recovered(
    server: FakeServer, node_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.concurrency.background._FIRST_SECONDS", 0.01)
    really, failures = VolumeRemovals.run, iter([OSError("no disk")])

    async def fails_once(self: VolumeRemovals, connection: Connection) -> None:
        for error in failures:
            raise error
        await really(self, connection)

    monkeypatch.setattr(VolumeRemovals, "run", fails_once)
    async with running(make(server, node_folder)):
        await eventually(lambda: server.of(Heartbeat)[-1:] and server.of(Heartbeat)[-1].background, "a report")
        (found,) = server.of(Heartbeat)[-1].background
        assert (found.name, found.failures, found.error) == ("volume removals", 1, "OSError: no disk")
        assert server.of(Heartbeat)[-1].problem is None


async def test_a_failing_background_task_is_a_problem_of_the_node(
    server: FakeServer, node_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.concurrency.background._FIRST_SECONDS", 0.01)

    async def fails(*_: object) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(VolumeRemovals, "run", fails)
    async with running(make(server, node_folder)):
        problem = "the agent's background task volume removals keeps failing: OSError: no disk"
        await eventually(lambda: server.of(Heartbeat)[-1:] and server.of(Heartbeat)[-1].problem == problem)
