"""The measured usage of real processes, from their nodes through a real server to the API."""

from __future__ import annotations

import pytest

from mooring.wire.tenancy.accounting import TaskUse
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

OFTEN = {"MOORING_HEARTBEAT_SECONDS": "0.2"}


def submit(server: Server, name: str, *command: str) -> None:
    container = {"command": list(command), "resources": {"cpu": "500m", "memory": "256Mi"}}
    with server.client() as client:
        client.submit(WorkloadRequest.model_validate({"name": name, "containers": [container]}))


def use(server: Server, name: str) -> TaskUse | None:
    with server.client() as client:
        return next((task for task in client.task_use(name=name).tasks if task.cpu_millicores is not None), None)


@pytest.mark.slow
def test_measured_process_usage_is_reported(servers: Servers):
    server = servers.start("--node-name", "box", environment=OFTEN)
    submit(server, "busy", "sh", "-c", "while :; do :; done")
    submit(server, "calm", "sleep", "600")
    calm = eventually(lambda: found if (found := use(server, "calm")) and found.memory_bytes else None)
    assert calm is not None
    eventually(lambda: (found := use(server, "busy")) and (found.cpu_millicores or 0) > 100)
    assert (calm.node, calm.cpu_asked_millicores, calm.memory_asked_bytes) == ("box", 500, 256 << 20)
    assert 0 < (calm.memory_bytes or 0) < 256 << 20
    with server.client() as client:
        assert [task.workload for task in client.task_use().tasks] == ["busy", "calm"]
    eventually(lambda: 'mooring_measured{node="box",pool="default",slot="cpu"}' in server.metrics())
