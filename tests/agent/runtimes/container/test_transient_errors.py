"""An engine that stumbles over a process that has just ended is asked again, with one warning and no traceback."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
import structlog
from aiohttp import web

from mooring.wire.agents.desired_tasks import EndWarning
from tests.agent.runtimes.container.conftest import Node, container, order
from tests.engine import Engine

STUMBLE = {"cause": "no such process", "message": "read /proc/4711/cgroup: no such process", "response": 500}
"""The answer of Podman 4.3 about a container whose process ends meanwhile."""


@asynccontextmanager
async def stumbling(engine: Engine, folder: Path, path: str, times: int) -> AsyncIterator[tuple[Engine, Counter[str]]]:
    """The real engine behind a socket at which the first requests for a path that matches fail after they were done."""
    left, stumbled = [times], Counter[str]()

    async def forward(request: web.Request) -> web.StreamResponse:
        async with session.request(
            request.method, f"http://engine{request.rel_url}", headers=request.headers, data=await request.read()
        ) as answer:
            if left[0] and re.search(path, f"{request.method} {request.path}"):
                left[0] -= 1
                stumbled[request.method] += 1
                return web.json_response(STUMBLE, status=500)
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            response.headers.popall("Transfer-Encoding", None)
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response

    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    connector = aiohttp.UnixConnector(engine.socket.removeprefix("unix://"), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        await runner.setup()
        await web.UnixSite(
            runner,
            str(folder / "e.sock"),
        ).start()
        try:
            yield cast(Engine, SimpleNamespace(socket=f"unix://{folder}/e.sock")), stumbled
        finally:
            await runner.cleanup()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        r"GET .*/containers/mooring-[^/]*/json",
        r"GET .*/containers/json",
        r"POST .*/containers/create",
        r"POST .*/containers/[^/]*/init",
        r"POST .*/containers/[^/]*/start",
        r"GET .*/containers/[^/]*/logs",
        r"GET .*/images/.*/json",
        r"DELETE .*/containers/",
    ],
)
async def test_a_task_ends_as_its_command_does_though_the_engine_stumbles(engine: Engine, tmp_path: Path, path: str):
    with structlog.testing.capture_logs() as logged:
        async with stumbling(engine, tmp_path, path, 2) as (flaky, stumbled), Node(tmp_path, flaky) as node:
            task = order("sh", "-c", "echo said; exit 3")
            found = await node.run(task)
            assert (found.status, found.exit_code, found.restarts) == ("FAILED", 3, 0)
            assert await node.output(task) == "said\n"
    assert stumbled
    assert not [line for line in logged if line["log_level"] == "error" or "exc_info" in line]
    assert len([line for line in logged if "trying again" in line["event"] and line["log_level"] == "warning"]) <= 2


async def test_a_start_that_never_works_is_a_failure_in_the_end(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mooring.agent.runtimes.container.task_reconciler._RETRY_SECONDS", 0.01)
    with structlog.testing.capture_logs() as logged:
        path = r"POST .*/containers/[^/]*/(init|start)"
        async with stumbling(engine, tmp_path, path, 1000) as (flaky, _), Node(tmp_path, flaky) as node:
            found = await node.run(order("sleep", "1000"))
    assert (found.status, found.code) == ("FAILED", "start-failed")
    assert "no such process" in found.reason
    assert len([line for line in logged if "trying again" in line["event"] and line["log_level"] == "warning"]) == 1


async def test_a_signal_arrives_though_the_engine_stumbles(engine: Engine, tmp_path: Path):
    waits = "trap 'exit 7' TERM; trap 'echo warned' USR1; while :; do sleep 0.1; done"
    async with stumbling(engine, tmp_path, r"POST .*/kill", 2) as (flaky, stumbled), Node(tmp_path, flaky) as node:
        task = order(containers=[container("sh", "-c", waits)], grace_seconds=60)
        await node.runtime.start(task)
        await node.until(task, "RUNNING")
        await node.runtime.warn(task.task_id, EndWarning(at=0.0, signal="USR1"))
        await node.runtime.stop(task.task_id, None, "requested")
        assert (await node.end(task)).exit_code == 7
    assert stumbled
