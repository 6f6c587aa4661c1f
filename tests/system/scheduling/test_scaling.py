"""A real server and a resource controller over HTTP: unschedulable work gets nodes, on which it then runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from mooring.wire.cluster.nodes import NodeRequest
from mooring.wire.cluster.pools import PoolChange, ScalingChange
from mooring.wire.cluster.scaling import TemplateRequest
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually


class Controller(ThreadingHTTPServer):
    """It is busy at first, and then adds the nodes that it is asked for, once for each key."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mooring: Server | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.made: dict[str, list[str]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def take(self, key: str, body: dict[str, Any]) -> int:
        self.asked.append((key, body))
        if len(self.asked) == 1:
            return 503
        if key not in self.made:
            self.made[key] = [f"made-{len(self.made)}-{number}" for number in range(body["nodes"])]
            assert self.mooring is not None
            with self.mooring.client() as client:
                for name in self.made[key]:
                    resources = body["node"]["resources"]
                    licence = body["node"]["licence"]
                    client.add_node(NodeRequest(name=name, simulated=True, resources=resources, licence=licence))
        return 202


class _Handler(BaseHTTPRequestHandler):
    server: Controller

    def do_POST(self) -> None:
        assert self.path == "/api/internal/workers/scale-up"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(self.server.take(self.headers["Idempotency-Key"], body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def controller() -> Iterator[Controller]:
    with Controller() as controller:
        Thread(target=controller.serve_forever, daemon=True).start()
        yield controller
        controller.shutdown()


@pytest.mark.slow
def test_pending_work_triggers_scale_up_and_idle_nodes_are_drained(servers: Servers, controller: Controller) -> None:
    environment = {"CONTROL_PLANE_API_URL": controller.url, "RECONCILE_INTERVAL": "1"}
    server = servers.start("--simulate", "1", "--no-agent", environment=environment)
    controller.mooring = server
    with server.client() as client:
        rules = ScalingChange(cooldown_seconds=1, shrink_cooldown_seconds=1, shrink="drain")
        client.change_pool("simulated", PoolChange(scaling=rules, on_insufficient="scale_up"))
        template = TemplateRequest(resources={"cpu": 64, "memory": "256Gi"}, licence="enterprise", boot_seconds=3600)
        client.put_node_template("simulated", "large", template)
        container = ContainerRequest(image="lab", resources={"cpu": "32", "memory": "64Gi"})
        labs = [WorkloadRequest(name=f"lab-{number}", containers=[container]) for number in range(4)]
        assert client.submit_batch(labs).refused == 0
        for number in range(4):
            assert client.wait(f"lab-{number}", "running", timeout_seconds=60).status == "RUNNING"
        # Two labs fit on a node: two nodes for all of them, asked for under one key however often it was tried.
        assert len(controller.asked) > 1
        assert {body["nodes"] for _, body in controller.asked} == {2}
        assert len({key for key, _ in controller.asked}) == 1

        def satisfied() -> bool:
            return [(r.status, r.joined) for r in client.scaling().requests] == [("SATISFIED", 2)]

        eventually(satisfied)
        made = {node.name: node for node in client.nodes().nodes if node.name.startswith("made-")}
        assert {(node.template, node.licence) for node in made.values()} == {("large", "enterprise")}
        for number in range(4):
            client.remove(f"lab-{number}")
        client.change_pool("simulated", PoolChange(scaling=ScalingChange(idle_seconds=1)))

        def spared() -> bool:
            return {(advice.node, advice.step) for advice in client.scaling().advice} == {(n, "remove") for n in made}

        eventually(spared)
        assert {node.status for node in client.nodes().nodes if node.name in made} == {"DRAINING"}
