"""A whole agent with an engine: it notices when one comes, and what it began outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from mooring.agent.runtimes.container.specification import name_of
from mooring.wire.agents.agent_protocol import Hello
from mooring.wire.agents.desired_tasks import DesiredTask
from tests.agent.builders import DEADLINE_SECONDS, eventually
from tests.agent.conftest import keep_cgroup_tidy
from tests.agent.fake_server import FakeServer
from tests.agent.runtimes.container.conftest import order
from tests.cli.terminal import MOORING
from tests.engine import Engine


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    server = FakeServer()
    await server.start()
    keep_cgroup_tidy(server.node_id)
    yield server
    await server.stop()


@contextmanager
def agent(server: FakeServer, folder: Path, engine: Engine, end: signal.Signals) -> Iterator[None]:
    """An agent in a process of its own, ended by this signal."""
    command = [*MOORING, "agent", "--server", server.url, "--token", "join-me", "--name", "box"]
    command += ["--data", str(folder), "--engine", engine.socket]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=dict(os.environ))
    try:
        yield
    finally:
        process.send_signal(end)
        process.wait(DEADLINE_SECONDS)


def runs(server: FakeServer, task: DesiredTask) -> bool:
    last = server.last(task)
    return last is not None and last.status == "RUNNING"


@pytest.mark.slow
async def test_a_killed_agent_finds_its_containers_again_and_an_engine_that_comes_late(
    server: FakeServer, node_folder: Path, engine: Engine
):
    task = order("sh", "-c", "trap 'exit 9' TERM; echo started; while :; do sleep 0.1; done")
    engine.stop()
    with agent(server, node_folder, engine, signal.SIGKILL):
        (hello,) = await eventually(lambda: server.of(Hello), "the agent's first words")
        assert hello.facts.runtimes == ["process"]
        engine.start()
        await eventually(lambda: server.of(Hello)[-1].facts.runtimes == ["container", "process"], "the engine found")
        await server.want(task)
        await eventually(lambda: runs(server, task), "the task's start")
    server.heard.clear()
    with agent(server, node_folder, engine, signal.SIGTERM):
        await eventually(lambda: runs(server, task), "the next agent's report")
        said = engine.run("logs", name_of(task.task_id, "main"))
        await server.want(msgspec.structs.replace(task, action="stop"))
        await eventually(server.ended(task), "the end of the task")
    last = server.last(task)
    assert last is not None
    assert (last.status, last.exit_code, said) == ("CANCELLED", 9, "started\n")
    assert name_of(task.task_id, "main") not in engine.containers()
