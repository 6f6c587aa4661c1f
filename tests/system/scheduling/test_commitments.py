"""Holds before anything starts, and preemption, with real agents."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from mooring.client import Client
from mooring.model.errors import MooringError
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import free_port
from tests.system.conftest import Servers, running_servers
from tests.system.servers import NodeAgent, Server, eventually, everything_in, process_of

PASSWORD = "a-password-of-somebody"
RETAINED_SECONDS = 600
"""Duration of a hold, long enough for a busy machine."""


@pytest.mark.slow
def test_a_gang_starts_on_two_nodes_only_when_both_agents_are_ready(servers: Servers) -> None:
    server, agents = _two_nodes(servers, hold_seconds=1)
    with server.client() as client:
        with _paused(agents["second"]):
            client.submit(_gang("first-gang"))
            # Its place expires, and it waits again: the other node has started nothing meanwhile.
            eventually(lambda: _failures(client, "first-gang").get("prepare") == "hold-expired")
            assert "RUNNING" not in {row.new_status for row in client.history("first-gang").history}
            assert not _processes_of(client, "first-gang")
            client.change_pool("default", PoolChange(hold_seconds=RETAINED_SECONDS))
        _runs(client, "first-gang", {"first", "second"})
        eventually(lambda: len(_processes_of(client, "first-gang")) == 2)
        statuses = [row.new_status for row in client.history("first-gang").history if row.noun == "workload"]
        assert statuses.count("RUNNING") == 1
        assert statuses.index("RESERVED") < statuses.index("RUNNING")


@pytest.mark.slow
def test_a_killed_server_finds_its_holds_after_a_restart(servers: Servers) -> None:
    server, agents = _two_nodes(servers, hold_seconds=RETAINED_SECONDS)
    with server.client() as client:
        with _paused(agents["second"]):
            client.submit(_gang("kept"))
            eventually(lambda: client.workload("kept").status == "RESERVED")
            server.kill()
            server.start()
            assert client.workload("kept").status == "RESERVED"
        _runs(client, "kept", {"first", "second"})
        assert _failures(client, "kept") == {}
        client.remove("kept")

        client.change_pool("default", PoolChange(hold_seconds=1))
        with _paused(agents["second"]):
            client.submit(_gang("swept"))
            eventually(lambda: client.workload("swept").status == "RESERVED")
            server.kill()
            server.start()
            eventually(lambda: _failures(client, "swept").get("prepare") == "hold-expired")
            client.change_pool("default", PoolChange(hold_seconds=RETAINED_SECONDS))
        _runs(client, "swept", {"first", "second"})


@pytest.fixture(scope="module")
def shared() -> Iterator[Servers]:
    with running_servers() as started:
        yield started


@pytest.fixture(scope="module")
def lab(shared: Servers) -> Server:
    """A server whose pool allows preemption, and a node with two devices."""
    server = shared.start("--no-agent")
    shared.node(server, "lab", "--device", "gpu=2")
    mooring = shared.cli()
    mooring.out("login", "--data", str(server.data))
    mooring.out("pool", "change", "default", "--preemption", "requeue", "--min-runtime", "0")
    return server


@pytest.mark.slow
def test_preempted_work_runs_again_afterwards(lab: Server, shared: Servers) -> None:
    gate = shared.folder / "gate"
    with lab.client() as admin:
        for name in ("ada", "bob"):
            admin.create_user(UserRequest(username=name, password=PASSWORD, project=f"of-{name}"))
    with lab.client("ada", PASSWORD) as ada, lab.client("bob", PASSWORD) as bob:
        script = "trap 'echo bye > bye; exit 0' TERM; echo $MOORING_TASK_ID; while :; do sleep 0.05; done"
        ada.submit(_request("patient", script, gpu="2", priority=5))
        first = process_of(eventually(lambda: _output(ada, "patient")))

        bob.submit(_request("polite", "true", gpu="1", priority=50, preempts=False))
        urgent = f"echo $MOORING_TASK_ID; while [ ! -e {gate} ]; do sleep 0.05; done"
        bob.submit(_request("secret-plan", urgent, gpu="1", priority=50))
        eventually(lambda: _output(bob, "secret-plan"))
        # Asked to leave, and given the time to do so in order.
        assert not psutil.pid_exists(first)
        assert [file.name for file in everything_in(shared.folder / "lab")].count("bye") == 1
        waiting = ada.workload("patient")
        assert waiting.status == "PENDING"
        received = waiting.model_dump_json() + ada.history("patient").model_dump_json()
        assert "Preempted by a workload with priority 50" in received
        assert "bob" not in received
        assert "secret-plan" not in received
        # The other device is free for who does not make others leave.
        assert bob.wait("polite", timeout_seconds=60).status == "SUCCEEDED"

        gate.touch()
        assert bob.wait("secret-plan", timeout_seconds=60).status == "SUCCEEDED"
        _runs(ada, "patient", {"lab"})
        second = process_of(eventually(lambda: _output(ada, "patient")))
        assert psutil.pid_exists(second)
        tasks = ada.workload("patient").tasks
        assert [(task.attempt, task.status) for task in tasks] == [(1, "CANCELLED"), (2, "RUNNING")]
        assert tasks[0].reason == "Preempted by a workload with priority 50"
        ada.remove("patient")
        ada.wait("patient", timeout_seconds=60)


@pytest.mark.slow
def test_non_preemptible_work_stays_and_a_budget_changes_the_victims(lab: Server, shared: Servers) -> None:
    mooring = shared.cli()
    with lab.client() as client:
        forever = ("--", "sh", "-c", "exec sleep 600")
        mooring.out("deploy", "firm", "--gpu", "2", "--priority", "1", "--not-preemptible", *forever)
        mooring.out("run", "--detach", "--name", "urgent", "--gpu", "1", "--priority", "90", *forever)
        eventually(lambda: "lacks 1 gpu" in (client.workload("urgent").reason or {}).get("message", ""))
        assert client.workload("firm").status == "RUNNING"
        mooring.out("rm", "firm", "urgent", "--yes")
        eventually(lambda: client.node("lab").tasks == 0)

        mooring.out("deploy", "needed", "--gpu", "1", "--priority", "1", "--min-available", "1", *forever)
        mooring.out("deploy", "spare", "--gpu", "1", "--priority", "5", "--no-preempt", *forever)
        mooring.out("deploy", "urgent", "--gpu", "1", "--priority", "90", *forever)
        assert client.workload("needed").status == "RUNNING"
        eventually(lambda: client.workload("spare").status == "PENDING")


def _two_nodes(servers: Servers, *, hold_seconds: int) -> tuple[Server, dict[str, NodeAgent]]:
    """A server whose pool binds in two phases, and two nodes of it, which find it again at the same port."""
    server = servers.start("--no-agent", "--port", str(free_port()))
    agents = {name: servers.node(server, name) for name in ("first", "second")}
    with server.client() as client:
        client.change_pool("default", PoolChange(binding="two_phase", hold_seconds=hold_seconds))
    return server, agents


@contextmanager
def _paused(agent: NodeAgent) -> Iterator[None]:
    """An agent that does nothing, and whose node is not suspect yet."""
    os.kill(agent.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(agent.pid, signal.SIGCONT)


def _gang(name: str) -> WorkloadRequest:
    container = {"command": ["sh", "-c", f"exec sleep 600 # {name}"], "resources": {"cpu": "50m"}}
    body = {"name": name, "kind": "deployment", "replicas": 2, "gang": True, "max_per_node": 1}
    return WorkloadRequest.model_validate({**body, "containers": [container]})


def _request(name: str, script: str, *, gpu: str, **more: Any) -> WorkloadRequest:
    container = {"command": ["sh", "-c", script], "resources": {"cpu": "50m", "gpu": gpu}}
    return WorkloadRequest.model_validate({"name": name, "containers": [container], **more})


def _runs(client: Client, ref: str, nodes: set[str]) -> None:
    eventually(lambda: client.workload(ref).status == "RUNNING")
    assert {task.node for task in client.workload(ref).tasks if task.current} == nodes


def _failures(client: Client, ref: str) -> dict[str, str | None]:
    """Return the last failure of each phase but binding, which is tried again where a node has changed meanwhile."""
    attempts = (attempt for attempt in client.history(ref).attempts if attempt.phase != "bind")
    return {attempt.phase: attempt.code for attempt in attempts if attempt.result != "success"}


def _processes_of(client: Client, workload: str) -> list[int]:
    """By the ids of its tasks: other tests on this machine use the same names."""
    tasks = {str(task.id) for task in client.workload(workload).tasks}
    running = psutil.process_iter(["environ"])
    return [each.pid for each in running if (each.info["environ"] or {}).get("MOORING_TASK_ID") in tasks]


def _output(client: Client, ref: str) -> str:
    try:
        return b"".join(client.logs(ref)).decode()
    except MooringError:  # not placed or not started yet
        return ""
