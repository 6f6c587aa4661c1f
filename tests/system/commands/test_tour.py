"""A newcomer's first commands on one server with simulated nodes and an agent."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mooring.client import Client
from mooring.model.errors import Unavailable
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest
from tests.servers import free_port
from tests.system.conftest import Servers
from tests.system.servers import Cli, Server, eventually, is_ready, process_of, running_server, workspace

SIMULATED = ("--pool", "simulated")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with workspace() as folder:
        yield folder


@pytest.fixture(scope="module")
def shared_server(place: Path) -> Iterator[Server]:
    with running_server(place / "data", "--simulate", "5", "--node-name", "here") as server:
        with server.client() as client:
            eventually(lambda: is_ready(client, "here"))
        yield server


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    yield shared_server
    shared_server.assert_books_agree()
    assert "Traceback" not in shared_server.log


@pytest.fixture(scope="module")
def logged_in(place: Path, shared_server: Server) -> Cli:
    cli = Cli(place / "person")
    cli.out("login", "--data", str(shared_server.data))
    return cli


@pytest.fixture
def mooring(logged_in: Cli, server: Server) -> Cli:
    return logged_in


def shown(mooring: Cli, *words: str) -> Any:
    return json.loads(mooring.out(*words, "--output", "json"))


@pytest.mark.slow
def test_the_servers_own_machine_needs_no_login(server: Server, place: Path) -> None:
    cli = Cli(place / "newcomer")
    assert server.url in cli.out("login", "--data", str(server.data))
    assert "admin" in cli.out("whoami")
    stored = next((place / "newcomer").rglob("credentials.json"))
    assert stored.stat().st_mode & 0o077 == 0


def test_a_deployment_on_simulated_nodes_lives_from_deploy_to_rm(mooring: Cli, server: Server) -> None:
    assert "running (simulated)" in mooring.out(
        "deploy", "tour", "--image", "nginx:latest", "--replicas", "3", *SIMULATED
    )
    assert "running (simulated)" in mooring.out("ps")
    detail = shown(mooring, "status", "tour")
    used = {task["node"] for task in detail["tasks"]}
    assert (detail["status"], detail["running"], len(used)) == ("RUNNING", 3, 3)

    with server.client() as client:
        mooring.out("scale", "tour", "4")
        eventually(lambda: client.workload("tour").running == 4)
        mooring.out("scale", "tour", "2")
        eventually(lambda: (found := client.workload("tour")).running == 2 and _current_nodes(found))

        drained = _current_nodes(client.workload("tour")).pop()
        mooring.out("drain", drained)
        eventually(lambda: (found := client.workload("tour")).running == 2 and drained not in _current_nodes(found))
        eventually(lambda: client.node(drained).tasks == 0)
        mooring.out("resume", drained)
        assert client.node(drained).schedulable

        assert "Deployment created by user" in mooring.out("history", "tour")
        mooring.out("rm", "--yes", "tour")
        eventually(lambda: not any(node.tasks for node in client.nodes().nodes if node.simulated))
    assert "tour" not in mooring.out("ps")


@pytest.mark.slow
def test_a_dry_run_predicts_the_placement_and_explain_gives_the_reason_for_waiting(mooring: Cli) -> None:
    words = ("deploy", "foretold", "--image", "nginx", "--replicas", "3", "--cpu", "2", *SIMULATED)
    would = shown(mooring, *words, "--dry-run")
    assert (would["outcome"], would["simulated"]) == ("placed", True)
    became = shown(mooring, *words)
    assert sorted(task["node"] for task in would["tasks"]) == sorted(task["node"] for task in became["tasks"])
    placed = shown(mooring, "explain", "foretold")
    assert placed["winner"]["node"] in {task["node"] for task in became["tasks"]}
    assert "runner-up" in mooring.out("explain", "foretold")
    mooring.out("deploy", "huge", "--image", "nginx", "--cpu", "1000", "--no-wait", *SIMULATED)
    assert "0 of 5 nodes: 5 lack 1000 cpu (best has " in mooring.out("explain", "huge")
    mooring.out("rm", "foretold", "huge", "--yes")


def _current_nodes(detail: WorkloadDetail) -> set[str]:
    return {task.node for task in detail.tasks if task.current and task.node}


def test_run_prints_the_commands_output_and_exits_with_its_code(mooring: Cli) -> None:
    done = mooring("run", "--", "python3", "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert mooring("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7").returncode == 7
    assert mooring("run", "--", "sh", "-c", "kill -9 $$").returncode == 128 + signal.SIGKILL
    missing = mooring("run", "--", "no-such-program-anywhere")
    assert missing.returncode in (126, 127)
    assert "no-such-program-anywhere" in missing.stderr


@pytest.mark.slow
def test_a_detached_session_is_waited_for_and_its_output_read_later(mooring: Cli) -> None:
    name = mooring.out("run", "--detach", "--env", "WORD=later", "--", "sh", "-c", "echo $WORD; exit 3").strip()
    assert mooring("wait", name).returncode == 3
    assert mooring.out("logs", name) == "later\n"
    detail = shown(mooring, "status", name)
    assert (detail["status"], detail["tasks"][0]["exit_code"]) == ("FAILED", 3)
    mooring.out("rm", "--yes", name)


@pytest.mark.slow
def test_logs_follow_a_session_to_its_end(mooring: Cli, place: Path) -> None:
    gate = place / "gate"
    gate.unlink(missing_ok=True)
    script = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo last"
    name = mooring.out("run", "-d", "--", "sh", "-c", script).strip()
    with mooring.begin("logs", "-f", name) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        gate.touch()
        assert follower.stdout.read() == "last\n"
    assert follower.returncode == 0


@pytest.mark.slow
def test_a_file_of_workloads_is_submitted_once_and_followed_as_it_runs(mooring: Cli, place: Path) -> None:
    wanted = [
        {"name": "nightly", "containers": [{"command": ["true"]}]},
        {"name": "misplaced", "pool": "nowhere", "containers": [{"command": ["true"]}]},
    ]
    file = place / "work.json"
    file.write_text(json.dumps(wanted))
    start = mooring.out("events").splitlines()[-1].split()[0]
    answers = [mooring("submit", "-f", str(file), "--key", "tonight") for _ in range(2)]
    assert [answer.returncode for answer in answers] == [1, 1]
    assert answers[0].stdout == answers[1].stdout
    lines = [line.split()[:2] for line in answers[0].stdout.splitlines()[1:]]
    assert lines == [["nightly", "accepted"], ["misplaced", "refused"]]
    seen: list[dict[str, Any]] = []
    with mooring.begin("events", "--follow", "--since", start, "--workload", "nightly", "--json") as follower:
        assert follower.stdout is not None
        while not seen or (seen[-1]["noun"], seen[-1]["kind"]) != ("workload", "SUCCEEDED"):
            seen.append(json.loads(follower.stdout.readline()))
        follower.terminate()
    assert (seen[0]["noun"], seen[0]["kind"]) == ("workload", "PENDING")
    revisions = [event["revision"] for event in seen]
    assert revisions == sorted(set(revisions))


def test_not_found_and_not_permitted_have_their_own_exit_codes(mooring: Cli, place: Path) -> None:
    assert mooring("status", "nobody-knows-this").returncode == 3
    stranger = Cli(place / "stranger")
    assert stranger("ps", "--server", f"http://127.0.0.1:{free_port()}").returncode == 5


def test_a_busy_port_is_named_with_the_flag_that_changes_it(servers: Servers) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        server = servers.prepare("--port", str(port), "--no-agent")
        server.launch()
        assert server.exit_code() == 1
    assert f"127.0.0.1:{port}" in server.log
    assert "--port" in server.log


def test_a_second_server_on_the_same_data_folder_is_refused(server: Server, servers: Servers) -> None:
    second = servers.prepare("--no-agent", data=server.data)
    second.log_name = "second"
    second.launch()
    assert second.exit_code() == 1
    assert str(server.data) in second.log
    assert "--data" in second.log
    assert server.status("/ready") == 200


@pytest.mark.slow
def test_ctrl_c_stops_the_server_cleanly_and_on_stop_decides_about_running_work(servers: Servers) -> None:
    server = servers.start("--on-stop", "leave")
    with server.client() as client:
        script = "echo $MOORING_TASK_ID; exec sleep 600"
        request = WorkloadRequest.model_validate({"name": "long", "containers": [{"command": ["sh", "-c", script]}]})
        ref = str(client.submit(request).id)
        assert client.wait(ref, "running", timeout_seconds=60).status == "RUNNING"
        pid = process_of(eventually(lambda: b"".join(client.logs(ref))))

    assert server.stop(signal.SIGINT) == 0
    assert "Graceful shutdown complete" in server.log
    assert "1 task continues to run on this machine: long/0" in server.log
    assert psutil.pid_exists(pid)

    server.flags = ("--on-stop", "stop")
    server.start()
    with server.client() as client:
        assert client.workload(ref).status == "RUNNING"
        eventually(lambda: any(node.status == "READY" for node in client.nodes().nodes))
        eventually(lambda: _output(client, ref))
    assert server.stop(signal.SIGINT) == 0
    assert not psutil.pid_exists(pid)

    server.start()
    with server.client() as client:
        eventually(lambda: client.workload(ref).status == "FAILED")
        ended = client.workload(ref)
        assert ended.tasks[0].reason is not None
        assert "agent" in ended.tasks[0].reason


def _output(client: Client, ref: str) -> bytes:
    try:
        return b"".join(client.logs(ref))
    except Unavailable:  # its agent is not connected yet
        return b""


@pytest.mark.slow
def test_an_interrupted_run_cancels_its_session(mooring: Cli) -> None:
    script = "echo $MOORING_TASK_ID; exec sleep 600"
    with mooring.begin("run", "--name", "interrupted", "--", "sh", "-c", script) as run:
        assert run.stdout is not None
        pid = process_of(run.stdout.readline())
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(60) == 130
    eventually(lambda: not psutil.pid_exists(pid))
