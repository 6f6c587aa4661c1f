"""A node whose agent dies: its replica is placed elsewhere, and its remaining tasks are stopped when it returns."""

from __future__ import annotations

import os
import signal
import sqlite3

import psutil
import pytest

from mooring.client import Client
from mooring.clock import now
from mooring.model.errors import MooringError
from mooring.wire.cluster.nodes import JoinTokenRequest, NodeView
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually, is_ready, process_of

QUICK = {"MOORING_HEARTBEAT_SECONDS": "0.3"}


@pytest.mark.slow
def test_a_lost_nodes_replica_is_replaced_and_the_old_one_stopped_when_the_node_returns(servers: Servers) -> None:
    impatient = {**QUICK, "MOORING_NODE_TIMEOUT_SECONDS": "8"}
    server = servers.start("--node-name", "here", environment=impatient)
    with server.client() as client:
        token = client.create_join_token(JoinTokenRequest(name="second")).token
        agent = servers.agent(server, "second", token)
        eventually(lambda: is_ready(client, "second") and is_ready(client, "here"))
        client.drain_node("here")
        container = {"command": ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 600"], "resources": {"cpu": "100m"}}
        request = {"name": "kept", "kind": "deployment", "containers": [container]}
        client.submit(WorkloadRequest.model_validate(request))
        old_pid = process_of(eventually(lambda: _output(client, "kept")))
        client.resume_node("here")
        assert [task.node for task in client.workload("kept").tasks] == ["second"]

        agent.kill()
        eventually(lambda: client.node("second").status == "LOST")
        eventually(lambda: _current(client, "kept") == [("here", 2, "RUNNING")])
        # Silence is not proof: the first one may still run, so its node is charged for it.
        assert psutil.pid_exists(old_pid)
        assert client.node("second").slots["cpu"].free != client.node("second").slots["cpu"].allocatable
        server.assert_books_agree()

        agent.token = None  # the credential of the first time is enough
        agent.launch()
        eventually(lambda: not psutil.pid_exists(old_pid))
        eventually(lambda: is_ready(client, "second") and _is_empty(client.node("second")))
        assert _current(client, "kept") == [("here", 2, "RUNNING")]
        new_pid = process_of(eventually(lambda: _output(client, "kept")))
        assert psutil.pid_exists(new_pid)
        client.remove("kept")
        eventually(lambda: _is_empty(client.node("here")))


@pytest.mark.slow
def test_a_paused_node_is_suspect_and_its_work_continues(servers: Servers) -> None:
    timeout = 15
    patient = {**QUICK, "MOORING_HEARTBEAT_GRACE_SECONDS": "0.3", "MOORING_NODE_TIMEOUT_SECONDS": str(timeout)}
    server = servers.start("--no-agent", environment=patient)
    with server.client() as client:
        token = client.create_join_token(JoinTokenRequest(name="second")).token
        agent = servers.agent(server, "second", token)
        eventually(lambda: is_ready(client, "second"))
        container = {"command": ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 600"], "resources": {"cpu": "100m"}}
        client.submit(WorkloadRequest.model_validate({"name": "kept", "kind": "deployment", "containers": [container]}))
        pid = process_of(eventually(lambda: _output(client, "kept")))
        # A leader declares no node silent before it has listened for that long.
        eventually(lambda: _led_seconds(client) > timeout)
        os.kill(agent.pid, signal.SIGSTOP)
        try:
            eventually(lambda: client.node("second").status == "SUSPECT")
        finally:
            os.kill(agent.pid, signal.SIGCONT)
        eventually(lambda: is_ready(client, "second"))
        assert _current(client, "kept") == [("second", 1, "RUNNING")]
        assert psutil.pid_exists(pid)
        client.remove("kept")
        eventually(lambda: _is_empty(client.node("second")))


@pytest.mark.slow
def test_a_join_token_works_once_and_in_time_and_a_credential_until_its_node_is_removed(servers: Servers) -> None:
    server = servers.start("--no-agent", environment=QUICK)
    with server.client() as client:
        token = client.create_join_token(JoinTokenRequest(name="second")).token
        misnamed = servers.agent(server, "other", token)
        assert misnamed.exit_code() == 1
        assert "second" in misnamed.log

        agent = servers.agent(server, "second", token)
        eventually(lambda: is_ready(client, "second"))
        agent.stop()
        thief = servers.agent(server, "thief", token, node="second")
        assert thief.exit_code() == 1
        assert "used before" in thief.log

        late = client.create_join_token(JoinTokenRequest(name="late")).token
        _expire_tokens(server)
        latecomer = servers.agent(server, "late", late)
        assert latecomer.exit_code() == 1
        assert "expired" in latecomer.log
        assert {node.name for node in client.nodes().nodes} == {"second"}

        client.remove_node("second", force=True)
        agent.token = None
        agent.launch()
        assert agent.exit_code() == 1
        assert "credential-refused" in agent.log
        assert client.nodes().nodes == []


@pytest.mark.slow
def test_a_live_nodes_name_cannot_be_taken_and_a_removed_nodes_agent_ends_its_tasks(servers: Servers) -> None:
    server = servers.start("--no-agent", environment=QUICK)
    with server.client() as client:
        token = client.create_join_token(JoinTokenRequest(name="second")).token
        agent = servers.agent(server, "second", token)
        eventually(lambda: is_ready(client, "second"))
        container = {"command": ["sh", "-c", "echo $MOORING_TASK_ID; exec sleep 600"], "resources": {"cpu": "100m"}}
        client.submit(WorkloadRequest.model_validate({"name": "kept", "kind": "deployment", "containers": [container]}))
        pid = process_of(eventually(lambda: _output(client, "kept")))

        another = client.create_join_token(JoinTokenRequest(name="second")).token
        double = servers.agent(server, "double", another, node="second")
        eventually(lambda: "is alive" in double.log)
        double.stop()
        assert psutil.pid_exists(pid)
        assert [(task.node, task.attempt) for task in client.workload("kept").tasks] == [("second", 1)]

        client.remove_node("second", force=True)
        assert agent.exit_code() == 1
        assert "removed" in agent.log
        assert not psutil.pid_exists(pid)
        client.remove("kept")


@pytest.mark.slow
def test_the_servers_own_agent_rejoins_when_its_node_was_removed(servers: Servers) -> None:
    server = servers.start("--node-name", "here", environment=QUICK)
    with server.client() as client:
        eventually(lambda: is_ready(client, "here"))
        client.drain_node("here")
        client.remove_node("here", force=True)
    server.stop()
    server.start()
    with server.client() as client:
        eventually(lambda: is_ready(client, "here"))


def _current(client: Client, ref: str) -> list[tuple[str | None, int, str]]:
    """Return node, attempt and status of the current tasks."""
    return [(task.node, task.attempt, task.status) for task in client.workload(ref).tasks if task.current]


def _led_seconds(client: Client) -> float:
    since = client.leader().since
    return (now() - since).total_seconds() if since is not None else 0.0


def _is_empty(node: NodeView) -> bool:
    return node.tasks == 0 and all(slot.free == slot.allocatable for slot in node.slots.values())


def _output(client: Client, ref: str) -> bytes:
    try:
        return b"".join(client.logs(ref))
    except MooringError:  # not placed or not started yet
        return b""


def _expire_tokens(server: Server) -> None:
    with sqlite3.connect(server.data / "mooring.db") as database:
        database.execute("UPDATE join_tokens SET expires_at = '2020-01-01 00:00:00.000000' WHERE used_at IS NULL")
