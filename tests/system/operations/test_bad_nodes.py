"""A node on which starts fail is avoided, then drained; a drain with a timeout ends the remaining tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooring.client import Client
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import eventually, everything_in

QUICK = {
    "MOORING_RECONCILE_INTERVAL": "0.5",
    "MOORING_NODE_FAILURES": "2",
    # What does not start is enough to tell.
    "MOORING_FAST_END_SECONDS": "0",
}


@pytest.mark.slow
def test_work_goes_elsewhere_when_a_node_cannot_start_it(servers: Servers) -> None:
    server = servers.start("--no-agent", environment=QUICK)
    servers.node(server, "good")
    bad = servers.node(server, "bad")
    with server.client() as client:
        _break(bad.data)
        for number in range(2):
            assert _run(client, f"first-{number}", node="bad").status == "FAILED"
        avoided = eventually(lambda: [t for t in client.node("bad").taints if t.key == "mooring/failing"])
        assert avoided[0].reason == "2 different workloads failed there within 30m: start-failed (2)"
        # Nothing says where it should run.
        for number in range(3):
            assert [task.node for task in _run(client, f"free-{number}").tasks] == ["good"]
        for number in range(2):
            _run(client, f"second-{number}", node="bad")
        eventually(lambda: client.node("bad").drained_at)
        assert client.node("bad").drain_reason == "4 different workloads failed there within 30m: start-failed (4)"
        eventually(lambda: "mooring_bad_nodes_drained_total 1.0" in server.metrics())
        assert client.resume_node("bad").taints == []


@pytest.mark.slow
def test_a_drain_with_a_deadline_ends_sessions_and_restarts_retryable_ones(servers: Servers) -> None:
    server = servers.start("--no-agent", environment={"MOORING_RECONCILE_INTERVAL": "0.5"})
    servers.node(server, "one")
    with server.client() as client:
        for name, type in (("batch", "batch"), ("desk", "interactive")):
            _submit(client, name, ["sleep", "600"], type=type)
        eventually(lambda: [client.workload(name).status for name in ("batch", "desk")] == ["RUNNING", "RUNNING"])
        servers.node(server, "two")
        client.drain_node("one", timeout_seconds=1, reason="new disks")
        eventually(lambda: client.workload("desk").status == "CANCELLED")
        assert (client.workload("desk").reason or {})["message"] == "Node one is drained: new disks"
        eventually(lambda: _places(client, "batch") == [("two", "RUNNING")])
        eventually(lambda: client.node("one").drained_at is not None)
        client.remove("batch")


def _submit(client: Client, name: str, command: list[str], *, node: str | None = None, type: str = "batch") -> None:
    container = {"command": command, "resources": {"cpu": "100m"}}
    placement = {} if node is None else {"placement": {"nodes": [node]}}
    request = {"name": name, "kind": "session", "type": type, "containers": [container], **placement}
    client.submit(WorkloadRequest.model_validate(request))


def _run(client: Client, name: str, *, node: str | None = None) -> WorkloadDetail:
    """A session from its start to its end."""
    _submit(client, name, ["echo", name], node=node)
    eventually(lambda: client.workload(name).status in ("SUCCEEDED", "FAILED"))
    return client.workload(name)


def _places(client: Client, name: str) -> list[tuple[str | None, str]]:
    return [(task.node, task.status) for task in client.workload(name).tasks if task.current]


def _break(data: Path) -> None:
    """Replace the agent's folder of tasks with a file."""
    [work] = [path for path in everything_in(data) if path.name == "work"]
    work.rmdir()
    work.touch()
