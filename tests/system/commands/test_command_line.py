"""The command line on a real server: crashes, interrupts, restarts, removals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import run_on_terminal
from tests.servers import free_port
from tests.system.conftest import Servers, running_servers
from tests.system.servers import Cli, Server, eventually

COUNTING = "i=0; while [ ! -e {gate} ]; do i=$((i + 1)); echo line $i; sleep 0.02; done; echo end $i"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Servers, Server]]:
    with running_servers() as servers:
        yield servers, servers.start("--node-name", "here")


@pytest.fixture
def mooring(shared: tuple[Servers, Server], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return _admin(*shared, monkeypatch)


def test_a_crash_loop_shows_its_restarts_last_exit_code_and_backoff_everywhere(mooring: Cli) -> None:
    assert mooring("deploy", "loop", "--cpu", "100m", "--", "sh", "-c", "exit 1").returncode == 1
    listed = eventually(lambda: _crash_loop(mooring))
    assert (listed["health"], listed["last_exit_code"], listed["restarts"] >= 1) == ("crash-looping", 1, True)
    shown = mooring.out("ps", "-o", "wide")
    assert "crash-looping" in shown
    assert "1 of 1 replica: exited with code 1, " in shown
    status = mooring.out("status", "loop").splitlines()
    assert any(line.split() == ["status:", "crash-looping"] for line in status)
    assert "last exit: exit code 1; exited with code 1" in [" ".join(line.split()) for line in status]
    events = [json.loads(line) for line in mooring.out("events", "--workload", "loop", "--json").splitlines()]
    [details, *_] = [event["details"] for event in events if event["kind"] == "crash-looping"]
    assert (details["exit_code"], details["crashes"] >= 2, details["next_retry_at"] is not None) == (1, True, True)
    mooring.out("rm", "--yes", "loop")


def test_a_run_that_is_interrupted_and_cancelled_stays_in_the_list_as_cancelled(mooring: Cli) -> None:
    with run_on_terminal("run", "--name", "given-up", "--cpu", "100m", "--", "sh", "-c", "echo up; sleep 600") as run:
        run.expect("up")
        run.interrupt()
        run.expect("[c]ancel it")
        run.type("c\n")
        assert run.exit_code() == 130
    assert "given-up" not in mooring.out("ps")
    eventually(lambda: _status(mooring, "given-up") == "CANCELLED")


def test_removing_a_node_asks_and_its_agent_does_not_join_again(shared: tuple[Servers, Server], mooring: Cli) -> None:
    servers, server = shared
    agent = servers.node(server, "leaving")
    with run_on_terminal("nodes", "remove", "leaving", "--force") as removal:
        removal.expect("Remove node leaving")
        removal.type("y\n")
        assert removal.exit_code() == 0
    assert agent.exit_code() != 0
    agent.token = None
    agent.launch()
    assert agent.exit_code() == 1
    assert "credential-refused" in agent.log
    assert "leaving" not in mooring.out("nodes", "-o", "name").split()


def test_following_logs_continues_through_a_restart_of_the_server(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.start("--port", str(free_port()), "--node-name", "here")
    mooring = _admin(servers, server, monkeypatch)
    gate = servers.folder / "gate"
    script = COUNTING.format(gate=gate)
    mooring.out("run", "-d", "--name", "counter", "--cpu", "100m", "--", "sh", "-c", script)
    with mooring.begin("logs", "-f", "counter") as following:
        assert following.stdout is not None
        lines = [following.stdout.readline() for _ in range(20)]
        assert server.stop() == 0
        before = server.url
        server.start()
        assert server.url == before
        # Output from before, during and after the restart.
        lines += [following.stdout.readline() for _ in range(200)]
        gate.touch()
        lines += following.stdout.readlines()
        assert following.wait(60) == 0
    last = len(lines) - 1
    assert lines == [*(f"line {number}\n" for number in range(1, last + 1)), f"end {last}\n"]


def _admin(servers: Servers, server: Server, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return the command of the admin; also for commands on a terminal."""
    token = server.credential("admin")["Authorization"].removeprefix("Bearer ")
    environment = {"MOORING_SERVER": server.url, "MOORING_TOKEN": token}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Cli(Path(servers.folder / "person"), environment)


def _crash_loop(mooring: Cli) -> dict[str, Any]:
    """Return the listed deployment while it waits for its next start, else nothing."""
    listed = json.loads(mooring.out("ps", "-o", "json"))
    rows = listed["workloads"] if isinstance(listed, dict) else listed
    return next((row for row in rows if row["name"] == "loop" and row["next_retry_at"]), {})


def _status(mooring: Cli, name: str) -> str:
    listed = json.loads(mooring.out("ps", "--all", "-o", "json"))
    rows = listed["workloads"] if isinstance(listed, dict) else listed
    return next(str(row["status"]) for row in rows if row["name"] == name)
