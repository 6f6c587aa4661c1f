"""Tenants on one node with a root agent cannot reach the server's secrets or each other's files and processes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mooring.client import Client
from mooring.model.errors import NotFound
from mooring.wire.tenancy.users import UserRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.servers import Server, eventually, process_of, running_server, workspace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only an agent with root can keep tenants apart")

SECRET = "bobs-secret-in-the-environment"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with workspace() as folder, running_server(folder / "data", "--node-name", "here") as server:
        with server.client() as admin:
            for name, project in (("alice", "vision"), ("bob", "audio")):
                admin.create_user(UserRequest(username=name, password=f"password-of-{name}", project=project))
            eventually(lambda: any(node.status == "READY" for node in admin.nodes().nodes))
        yield server
        assert "Traceback" not in server.log


@pytest.fixture
def alice(server: Server) -> Iterator[Client]:
    with server.client("alice", "password-of-alice") as client:
        yield client
    server.assert_books_agree()


@pytest.fixture(scope="module")
def victim(server: Server) -> Iterator[int]:
    """A running task of bob's that has a note in its work folder; its pid."""
    with server.client("bob", "password-of-bob") as bob:
        script = "umask 000; echo private > note; echo $MOORING_TASK_ID; exec sleep 600"
        container = {"command": ["sh", "-c", script], "environment": {"PASSWORD": SECRET}}
        accepted = bob.submit(WorkloadRequest.model_validate({"name": "victim", "containers": [container]}))
        assert bob.wait(str(accepted.id), "running", timeout_seconds=60).status == "RUNNING"
        yield process_of(eventually(lambda: b"".join(bob.logs("victim"))))
        bob.remove("victim")
        assert bob.wait(str(accepted.id), timeout_seconds=60).ended_at is not None


def output_of(client: Client, script: str) -> str:
    request = {"containers": [{"command": ["sh", "-c", script]}]}
    ref = str(client.submit(WorkloadRequest.model_validate(request)).id)
    assert client.wait(ref, timeout_seconds=60).ended_at is not None
    return b"".join(client.logs(ref, follow=True)).decode()


def test_tenants_run_as_users_of_their_own_without_any_privilege(server: Server, alice: Client, victim: int) -> None:
    status = dict(
        line.split(":\t", 1) for line in output_of(alice, "cat /proc/self/status").splitlines() if ":\t" in line
    )
    mine = {int(word) for word in status["Uid"].split()}
    theirs = Path(f"/proc/{victim}").stat().st_uid
    assert len(mine) == 1
    assert min(mine | {theirs}) >= 200_000
    assert theirs not in mine
    assert status["NoNewPrivs"] == "1"
    assert [int(status[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 4


def test_a_tenants_task_can_read_no_secret_of_the_server_and_nothing_of_another_tenant(
    server: Server, alice: Client, victim: int
) -> None:
    data = server.data
    work = next(data.rglob("note")).parent
    wanted = [
        data / "signing-keys.json",
        data / "mooring.db",
        data / "mooring.db-wal",
        data / "admin-password",
        data / "agent" / "credential.json",
        *(data / "agent" / "tasks").glob("*/*"),
        work / "note",
        Path(f"/proc/{victim}/environ"),
        Path(f"/proc/{victim}/cwd/note"),
        Path(f"/proc/{server.pid}/environ"),
    ]
    assert len(wanted) > 11, "the victim has left files in the agent's folder"
    for path in wanted:
        assert path.exists(), path
    folders = [data, data / "agent", data / "agent" / "tasks", data / "agent" / "work", work]
    script = ";".join(
        [
            *(f"cat {shlex.quote(str(path))} && echo READ {shlex.quote(str(path))}" for path in wanted),
            *(f"ls {shlex.quote(str(path))} && echo LISTED {shlex.quote(str(path))}" for path in folders),
            *(f"touch {shlex.quote(str(path))}/mine && echo WRITTEN {shlex.quote(str(path))}" for path in folders),
            f"kill -0 {victim} && echo SIGNALLED",
            "echo done",
        ]
    )
    said = output_of(alice, script)
    assert said.endswith("done\n")
    for word in ("READ", "LISTED", "WRITTEN", "SIGNALLED", SECRET, "private"):
        assert word not in said


def test_a_tenant_sees_neither_anothers_workload_nor_its_output(server: Server, alice: Client, victim: int) -> None:
    with server.client("bob", "password-of-bob") as bob:
        ref = str(bob.workload("victim").id)
    assert "victim" not in [workload.name for workload in alice.workloads(all=True, limit=1000).workloads]
    for attempt in (
        lambda: alice.workload(ref),
        lambda: alice.history(ref),
        lambda: list(alice.logs(ref)),
        lambda: alice.remove(ref),
    ):
        with pytest.raises(NotFound):
            attempt()
    with server.client() as admin:
        assert admin.workload(ref).environment is None
