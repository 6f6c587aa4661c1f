"""The isolation level of a real node: reported, required by its pool, and enforced against a task that probes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from mooring.client import Client
from mooring.model.errors import MooringError
from mooring.wire.cluster.pools import PoolChange
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import MOORING, Server, eventually, running_server, workspace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only an agent with root can isolate tenants")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with workspace() as folder, running_server(folder / "data", "--node-name", "here") as server:
        with server.client() as admin:
            eventually(lambda: any(node.status == "READY" for node in admin.nodes().nodes))
        yield server
        assert "Traceback" not in server.log


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client
        client.change_pool("default", PoolChange(isolation="none"))


def submit(client: Client, *command: str) -> str:
    request = {"containers": [{"command": list(command), "resources": {"cpu": "100m"}}]}
    return str(client.submit(WorkloadRequest.model_validate(request)).id)


@pytest.mark.slow
def test_a_task_finds_neither_the_server_nor_its_command_line(server: Server, client: Client) -> None:
    ref = submit(client, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'; echo done")
    assert client.wait(ref, timeout_seconds=60).ended_at is not None
    lines = b"".join(client.logs(ref, follow=True)).decode().splitlines()
    assert lines[-1] == "done"
    assert str(server.data) not in lines
    assert MOORING not in lines


def test_a_node_logs_and_reports_its_level(server: Server, client: Client) -> None:
    node = client.node("here")
    assert (node.isolation, node.isolation_reason) == ("namespaces", "")
    assert "isolation=namespaces" in server.log


def test_a_pool_that_requires_the_level_of_its_nodes_runs_processes(client: Client) -> None:
    client.change_pool("default", PoolChange(isolation="namespaces"))
    assert client.wait(submit(client, "true"), timeout_seconds=60).status == "SUCCEEDED"


def test_a_pool_that_requires_containers_refuses_processes_at_submission(client: Client) -> None:
    client.change_pool("default", PoolChange(isolation="container"))

    def refusal() -> MooringError | None:
        try:
            submit(client, "true")
        except MooringError as error:
            return error
        return None

    # A server knows the options of pools as they were up to a second ago; placement does not.
    refused = eventually(refusal)
    assert refused is not None
    assert (refused.code, "requires containers" in refused.message) == ("isolation-insufficient", True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="taking a capability away needs setpriv")
def test_a_node_without_namespaces_runs_only_work_that_its_pool_allows() -> None:
    with workspace() as folder:
        server = Server(folder / "data", ("--node-name", "weak"), {"MOORING_ADMIN_PASSWORD": "a-password-of-tests"})
        server.prefix = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
        server.start()
        try:
            with server.client(password="a-password-of-tests") as client:
                eventually(lambda: any(node.status == "READY" for node in client.nodes().nodes))
                assert client.node("weak").isolation == "user"
                assert "Operation not permitted" in client.node("weak").isolation_reason
                assert client.wait(submit(client, "true"), timeout_seconds=60).status == "SUCCEEDED"
                client.change_pool("default", PoolChange(isolation="namespaces"))
                waiting = submit(client, "true")

                def insufficient() -> str:
                    reason = client.workload(waiting).reason or {}
                    return str(reason["message"]) if reason.get("code") == "isolation-insufficient" else ""

                assert "1 provides isolation user, below namespaces" in eventually(insufficient)
        finally:
            server.stop()
