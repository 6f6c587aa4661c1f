"""Access to containers: permitted users reach the running task, and for everybody else it does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mooring.client import AsyncClient
from mooring.client.credentials import CredentialStore
from mooring.model.errors import NotAuthenticated, NotFound
from mooring.wire.tenancy.users import UserChange, UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.cli.terminal import run_on_terminal
from tests.engine import BUSYBOX
from tests.system.containers.conftest import Box
from tests.system.servers import PASSWORD, eventually

PATIENT_SECONDS = 180.0
LISTENING = """
echo up
[ $MOORING_INDEX = 1 ] || exit 0
echo found > /tmp/word
echo listening
while read line; do echo heard $line; done
"""


@pytest.fixture
def crew(box: Box) -> str:
    """The id of a task that answers on its terminal; the one before it has ended."""
    container = {
        "image": BUSYBOX,
        "pull": "never",
        "command": ["sh", "-c", LISTENING],
        "terminal": True,
        "ports": [8080],
        "resources": {"cpu": "100m"},
    }
    request = {"name": "crew", "containers": [container], "replicas": 2, "stop_grace_seconds": 0}
    box.client.submit(WorkloadRequest.model_validate(request))
    eventually(lambda: [task.status for task in box.client.workload("crew").tasks] == ["SUCCEEDED", "RUNNING"])
    eventually(lambda: b"listening" in b"".join(box.client.logs("crew", task=1)))
    return str(box.client.workload("crew").tasks[1].id)


@pytest.mark.slow
def test_commands_default_to_the_running_task(
    box: Box, crew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mooring = box.mooring
    mooring.out("cp", "crew:/tmp/word", str(tmp_path))
    assert (tmp_path / "word").read_text() == "found\n"
    assert mooring.out("exec", "crew", "--", "sh", "-c", "echo $MOORING_TASK_ID") == f"{crew}\n"
    for name, value in mooring.environment.items():
        monkeypatch.setenv(name, value)
    with run_on_terminal("logs", "-f", "crew") as following:
        for _ in range(2):
            following.expect("| \x1b[0mup")
        with run_on_terminal("attach", "crew") as terminal:
            terminal.expect_hidden_input()
            terminal.type("ahoy\n")
            terminal.expect("heard ahoy")
            terminal.type("\x10\x11")
            assert terminal.exit_code() == 0
        following.expect("\x1b[33mcrew/1 | \x1b[0mheard ahoy")
        following.interrupt()
        assert {"\x1b[36mcrew/0 | \x1b[0mup", "\x1b[33mcrew/1 | \x1b[0mup"} <= set(following.text.splitlines())
    assert mooring.out("logs", "crew", "--task", "1").splitlines()[-1] == "heard ahoy"
    assert [task.status for task in box.client.workload("crew").tasks] == ["SUCCEEDED", "RUNNING"]
    rows = box.client.actions(noun="task", object="crew/1").actions
    assert [row.action for row in reversed(rows)] == ["fetch-files", "exec", "attach"]


@pytest.mark.slow
async def test_other_tenants_get_not_found(box: Box, crew: str) -> None:
    box.client.create_user(UserRequest(username="eve", password=PASSWORD))
    token = box.server.credential("eve")["Authorization"].removeprefix("Bearer ")
    store = CredentialStore(box.server.data.parent / "no-logins.json")
    async with asyncio.timeout(PATIENT_SECONDS), AsyncClient(box.server.url, token=token, store=store) as eve:
        for opening in (
            eve.run_command(crew, ["id"]),
            eve.attach(crew),
            eve.forward_to_task(crew, 8080),
            eve.forward("crew", 8080),
        ):
            with pytest.raises(NotFound):
                async with opening:
                    pass
        workload = str(box.client.workload("crew").id)
        for reading in (eve.fetch_files(crew, "/tmp/word"), eve.logs("crew"), eve.logs(workload)):
            with pytest.raises(NotFound):
                await anext(aiter(reading))
        with pytest.raises(NotFound):
            await eve.store_files(crew, "/tmp", nothing())


@pytest.mark.slow
async def test_open_connections_end_when_their_user_is_deactivated(box: Box) -> None:
    box.client.create_user(UserRequest(username="mate", password=PASSWORD))
    serving = "echo up; (while :; do nc -l -p 8080 -e cat; done) & while read line; do echo heard $line; done"
    container = {
        "image": BUSYBOX,
        "pull": "never",
        "command": ["sh", "-c", serving],
        "terminal": True,
        "ports": [8080],
        "resources": {"cpu": "100m"},
    }
    request = {"name": "watch", "containers": [container], "stop_grace_seconds": 0}
    with box.server.client("mate") as client:
        workload = str(client.submit(WorkloadRequest.model_validate(request)).id)
        eventually(lambda: client.workload(workload).status == "RUNNING")
        eventually(lambda: b"up" in b"".join(client.logs(workload)))
        task = str(client.workload(workload).tasks[0].id)
    token = box.server.credential("mate")["Authorization"].removeprefix("Bearer ")
    store = CredentialStore(box.server.data.parent / "no-logins.json")
    async with (
        asyncio.timeout(PATIENT_SECONDS),
        AsyncClient(box.server.url, token=token, store=store) as mate,
        mate.attach(task) as attached,
        mate.forward_to_task(task, 8080) as forwarded,
    ):
        await forwarded.write(b"ahoy")
        assert await forwarded.read() == (b"ahoy", False)
        box.client.change_user("mate", UserChange(active=False))
        for channel in (attached, forwarded):
            while await channel.read() is not None:
                pass
            with pytest.raises(NotAuthenticated, match="access-revoked"):
                await channel.exit_code()
    box.client.remove(workload)
    eventually(lambda: box.client.workload(workload).ended_at)


async def nothing() -> AsyncIterator[bytes]:
    yield b""
