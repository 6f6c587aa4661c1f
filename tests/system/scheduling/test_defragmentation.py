"""A real server with simulated nodes: a pending task for a whole node starts after the moves of a plan."""

from __future__ import annotations

import pytest

from mooring.client.synchronous import Client
from mooring.wire.cluster.nodes import NodeRequest
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import Cli, eventually


def submit(client: Client, name: str, gpus: str, *nodes: str, kind: str = "session") -> None:
    container = ContainerRequest(image="train", resources={"cpu": "1", "memory": "1Gi", "gpu": gpus})
    placement = {"placement": {"nodes": list(nodes)}} if nodes else {}
    given = {"name": name, "kind": kind, "containers": [container.model_dump(exclude_unset=True)], **placement}
    client.submit(WorkloadRequest.model_validate(given))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["session", "deployment"])
def test_a_pending_workload_for_eight_devices_starts_after_defrag_apply(servers: Servers, kind: str) -> None:
    server = servers.start("--no-agent", environment={"RECONCILE_INTERVAL": "1"})
    with server.client() as client:
        for number in (1, 2):
            resources: dict[str, str | int] = {"cpu": "32", "memory": "128Gi", "gpu": "8"}
            client.add_node(NodeRequest(name=f"gpu-{number}", simulated=True, resources=resources))
        submit(client, "small", "1", "gpu-1", kind=kind)
        submit(client, "other", "3", "gpu-2")
        for name in ("small", "other"):
            assert client.wait(name, "running", timeout_seconds=60).status == "RUNNING"
        submit(client, "large", "8")
        token = server.credential("admin")["Authorization"].removeprefix("Bearer ")
        mooring = Cli(servers.folder / "person", {"MOORING_SERVER": server.url, "MOORING_TOKEN": token})
        result = mooring("defrag", "plan", "--pool", "simulated", "--max-moves", "1", "--apply")
        assert result.returncode == 0, result.stderr
        assert "Move 1 of 1: " in result.stdout
        assert client.wait("large", "running", timeout_seconds=60).status == "RUNNING"
        moved = [line.split()[1] for line in result.stdout.splitlines() if " starts on " in line]
        history = client.history(moved[0]).history
        assert any("for plan" in (change.reason or "") for change in history)
        assert any(action.action == "move" for action in client.actions().actions)


@pytest.mark.slow
def test_a_pool_with_a_budget_moves_tasks_by_itself(servers: Servers) -> None:
    server = servers.start("--no-agent", environment={"RECONCILE_INTERVAL": "1"})
    with server.client() as client:
        for number in (1, 2):
            resources: dict[str, str | int] = {"cpu": "32", "memory": "128Gi", "gpu": "8"}
            client.add_node(NodeRequest(name=f"gpu-{number}", simulated=True, resources=resources))
        submit(client, "small", "1", "gpu-1")
        submit(client, "other", "3", "gpu-2")
        for name in ("small", "other"):
            assert client.wait(name, "running", timeout_seconds=60).status == "RUNNING"
        token = server.credential("admin")["Authorization"].removeprefix("Bearer ")
        mooring = Cli(servers.folder / "person", {"MOORING_SERVER": server.url, "MOORING_TOKEN": token})
        assert mooring("pool", "change", "simulated", "--defrag-moves", "3").returncode == 0
        submit(client, "large", "8")
        assert client.wait("large", "running", timeout_seconds=90).status == "RUNNING"
        eventually(lambda: _newest_plan(client) == "COMPLETED")
        assert "1 in the last hour, 2 left" in mooring("pool", "show", "simulated").stdout
        assert "arrived" in mooring("defrag", "list", "--pool", "simulated").stdout


def _newest_plan(client: Client) -> str | None:
    moves = client.pool("simulated").automatic_moves
    return None if moves is None else moves.status
