"""Every background task of a server and its agent recovers from an error. A new task is covered, too."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mooring.concurrency.background import BackgroundTask, BackgroundTasks
from mooring.server.composition import build
from mooring.settings import load
from mooring.store.core.engine import Database
from tests.servers import running_etcd

PATIENT = 120.0
OF_AGENT = {"reconcile", "connection", "cleanup", "heartbeats", "measures", "image reports", "volume removals"}
OF_SERVER = {
    "presence", "task reports", "agent orders", "heartbeats", "revocation", "measures", "upload expiry", "leader",
    "agent",
}  # fmt: skip
SIGNALS = {"etcd": {"signals from etcd", "signals to etcd"}, "database": {"signals from the database"}}


@pytest.mark.slow
@pytest.mark.parametrize("coordination", ["etcd", "database"])
async def test_every_background_task_is_restarted_after_an_error_and_the_server_works(
    tmp_path: Path, postgres_url: str, coordination: str, monkeypatch: pytest.MonkeyPatch
):
    injected: set[str] = set()
    really = BackgroundTasks.start

    def start(self: BackgroundTasks, name: str, work: Callable[[], Awaitable[None]], **options: Any) -> BackgroundTask:
        first = True

        async def failing_once() -> None:
            nonlocal first
            if first:
                first = False
                injected.add(name)
                raise RuntimeError("injected")
            await work()

        return really(self, name, failing_once, **options)

    monkeypatch.setattr(BackgroundTasks, "start", start)
    monkeypatch.setattr("mooring.concurrency.background._FIRST_SECONDS", 0.05)
    with running_etcd() as etcd, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        settings = load(
            {
                "data": tmp_path,
                "database": postgres_url,
                "port": listener.getsockname()[1],
                "node_name": "here",
                "engine": "none",
                "signing_key": "a key that nobody else has and that is long enough",
                "admin_password": "correct-horse-7",
            }
            | ({"etcd_host": "127.0.0.1", "etcd_port": etcd.port} if coordination == "etcd" else {}),
            environment={},
        ).settings
        database = Database(settings.database_url, name="me")
        server = await build(settings, database, "me", f"http://127.0.0.1:{settings.port}")
        assert server.uvicorn is not None
        running = asyncio.create_task(server.run(listener))
        url = f"http://127.0.0.1:{settings.port}"
        async with aiohttp.ClientSession(url) as session, asyncio.timeout(PATIENT):
            login = {"username": "admin", "password": "correct-horse-7"}
            while not await _node_ready(session, login):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            token = await _token(session, login)
            expected = OF_SERVER | SIGNALS[coordination] | {f"agent: {name}" for name in OF_AGENT}
            expected |= {"agent: container engine"}
            reported: dict[str, Any] = {}
            while not expected <= {name for name, task in reported.items() if task["failures"]}:
                await asyncio.sleep(0.05)
                async with session.get("/api/loops", headers=token) as answer:
                    reported = {task["name"]: task for task in (await answer.json())["background"]}
            assert all(task["error"] == "RuntimeError: injected" for task in reported.values())
            assert server.leader is not None
            assert server.leader.leads
            async with session.get("/metrics") as answer:
                counted = await answer.text()
            assert all(f'mooring_background_task_failures_total{{task="{name}"}}' in counted for name in injected)
            async with session.get("/ready") as answer:
                ready = await answer.json()
            assert ready["ready"], ready
            # All that there is was made to fail: nothing is missing from the report.
            assert set(reported) == expected
        server.uvicorn.should_exit = True
        await asyncio.wait_for(running, PATIENT)
        await database.close()


async def _token(session: aiohttp.ClientSession, login: dict[str, str]) -> dict[str, str]:
    async with session.post("/api/auth/login", json=login) as answer:
        return {"Authorization": f"Bearer {(await answer.json())['access_token']}"}


async def _node_ready(session: aiohttp.ClientSession, login: dict[str, str]) -> bool:
    try:
        token = await _token(session, login)
        async with session.get("/api/nodes", headers=token) as answer:
            return [node["status"] for node in (await answer.json())["nodes"]] == ["READY"]
    except aiohttp.ClientError:
        return False
