"""Host ports on a real machine: ports of other programs, and two agents that assign from the same range."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from mooring.client import Client
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import eventually

QUICK = {"MOORING_HEARTBEAT_SECONDS": "0.5"}
SHOW = "echo $MOORING_PORTS"
LISTEN = (
    "import os, socket, time; s = socket.socket(); s.bind(('', int(os.environ['MOORING_PORTS']))); s.listen(); "
    "print('listening', s.getsockname()[1], flush=True); time.sleep(1000)"
)


@pytest.mark.slow
def test_a_port_that_another_program_holds_costs_a_placement_but_no_attempt(servers: Servers) -> None:
    server = servers.start("--node-name", "here", environment=QUICK)
    with server.client() as client, ExitStack() as stack:
        _submit(client, "first", ["sh", "-c", SHOW], ports=1)
        port = _port(client, "first")
        # Bound, but without listening: nothing shows it before the agent tests the port.
        foreign = stack.enter_context(socket.socket())
        foreign.bind(("127.0.0.1", port))

        _submit(client, "second", ["sh", "-c", SHOW], ports=1)
        assert _port(client, "second") != port
        second = client.workload("second")
        assert [(task.attempt, task.status) for task in second.tasks] == [(1, "FAILED"), (2, "SUCCEEDED")]
        attempts = [(attempt.code, attempt.result) for attempt in client.history("second").attempts]
        # A busy machine also has attempts to bind, since its node may change between a decision and its commit.
        assert [each for each in attempts if each[0] != "conflict"] == [("port-in-use", "retry"), (None, "success")]
        assert f"port {port}/TCP of the node is in use by" in (second.tasks[0].reason or "")

        # It is not offered again while it is in use, not even to a task that names it.
        _submit(client, "third", ["sh", "-c", SHOW], ports=1)
        assert _port(client, "third") != port
        assert [task.attempt for task in client.workload("third").tasks] == [1]
        _submit(client, "named", ["sh", "-c", SHOW], host_ports=[{"port": port}])
        eventually(lambda: (client.workload("named").reason or {}).get("code") == "ports-in-use")

        foreign.close()
        assert _port(client, "named") == port
        assert [task.attempt for task in client.workload("named").tasks] == [1]


@pytest.mark.slow
def test_listening_programs_are_known_before_a_placement(servers: Servers) -> None:
    server = servers.start("--node-name", "here", environment=QUICK)
    with server.client() as client, ExitStack() as stack:
        _submit(client, "first", ["sh", "-c", SHOW], ports=1)
        port = _port(client, "first")
        listener = stack.enter_context(socket.socket(socket.AF_INET6))
        listener.bind(("::1", port))
        listener.listen()
        _submit(client, "named", ["true"], host_ports=[{"port": port}])
        # A refusal, if the agent's heartbeat came later than the placement; then the port is left alone.
        eventually(lambda: (client.workload("named").reason or {}).get("code") == "ports-in-use")
        listener.close()
        assert _ended(client, "named").status == "SUCCEEDED"


@pytest.mark.slow
def test_two_agents_on_one_machine_never_give_two_tasks_the_same_port(servers: Servers) -> None:
    server = servers.start("--node-name", "here", environment=QUICK)
    there = servers.node(server, "there")
    with server.client() as client:
        spread = {"anti_affinity": [{"labels": {"app": "web"}}]}
        _submit(
            client,
            "web",
            ["python3", "-c", LISTEN],
            ports=1,
            kind="deployment",
            replicas=2,
            labels={"app": "web"},
            placement=spread,
        )
        ports = eventually(lambda: _listening(client, "web", 2))
        assert len({port for _, port in ports}) == len({node for node, _ in ports}) == 2

        # The reservations are held by the tasks' supervisors, also while their agent is away.
        there.kill()
        own = next(port for node, port in ports if node == "there")
        _submit(client, "named", ["true"], host_ports=[{"port": own}], placement_on="here")
        eventually(lambda: (client.workload("named").reason or {}).get("code") == "ports-in-use")
        there.launch()
        client.cancel("web")
        assert _ended(client, "named").status == "SUCCEEDED"


def _submit(client: Client, name: str, command: list[str], **terms: Any) -> None:
    asked = terms.pop("placement", {})
    asked |= {key: terms.pop(key) for key in ("ports", "host_ports") if key in terms}
    if (node := terms.pop("placement_on", None)) is not None:
        asked["node_selector"] = {"node": node}
    container = {"command": command, "resources": {"cpu": "100m"}}
    request = {"name": name, "containers": [container], "stop_grace_seconds": 0, "placement": asked, **terms}
    client.submit(WorkloadRequest.model_validate(request))


def _ended(client: Client, name: str) -> WorkloadDetail:
    eventually(lambda: client.workload(name).ended_at is not None)
    return client.workload(name)


def _port(client: Client, name: str) -> int:
    """Return the port that an ended job printed."""
    assert _ended(client, name).status == "SUCCEEDED"
    return int(b"".join(client.logs(name)))


def _listening(client: Client, name: str, number: int) -> list[tuple[str, int]]:
    """Return node and port of the tasks, once that many listen, else nothing."""
    running = [task for task in client.workload(name).tasks if task.status == "RUNNING"]
    printed = [b"".join(client.logs(name, task=task.index)).decode().split() for task in running]
    if len(running) < number or not all(printed):
        return []
    return [(task.node or "", int(port)) for task, (_, port) in zip(running, printed, strict=True)]
