"""A real job with a time limit: it is warned, ended and told why; and one that fails is tried again."""

from __future__ import annotations

import sqlite3

from mooring.client import Client
from mooring.wire.api import WorkloadDetail, WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

PATIENT = "trap 'echo warned' USR1; trap '' TERM; echo ready; while :; do sleep 0.05 2>/dev/null; done"
FAILING = 'echo "attempt $MOORING_ATTEMPT"; test "$MOORING_ATTEMPT" = 2'


def test_a_job_is_warned_and_ended_in_time_and_a_failing_one_tried_again(servers: Servers) -> None:
    server = servers.start("--node-name", "here")
    with server.client() as client:
        eventually(lambda: client.node("here").status == "READY")
        client.drain_node("here")
        for name, script in (("patient", PATIENT), ("failing", FAILING)):
            container = {"command": ["sh", "-c", script], "resources": {"cpu": "100m"}}
            request = {"name": name, "containers": [container], "stop_grace_seconds": 0}
            client.submit(WorkloadRequest.model_validate(request))
        _limit(server)
        client.resume_node("here")
        ended = _ended(client, "patient")
        assert ended.reason is not None
        assert (ended.status, ended.reason["code"]) == ("FAILED", "time-limit")
        assert _output(client, "patient").split().count("warned") == 1
        retried = _ended(client, "failing")
        assert [(task.attempt, task.status) for task in retried.tasks] == [(1, "FAILED"), (2, "SUCCEEDED")]
        assert retried.status == "SUCCEEDED"
        assert _output(client, "failing") == "attempt 2\n"
        server.assert_books_agree()


def _limit(server: Server) -> None:
    with sqlite3.connect(server.data / "mooring.db") as database:
        database.execute(
            "UPDATE workloads SET time_limit_seconds = 2, warning_signal = 'USR1', warning_seconds = 1"
            " WHERE name = 'patient'"
        )
        database.execute("UPDATE workloads SET max_retries = 1 WHERE name = 'failing'")


def _ended(client: Client, name: str) -> WorkloadDetail:
    """The workload, once it has ended."""
    eventually(lambda: client.workload(name).ended_at is not None)
    return client.workload(name)


def _output(client: Client, name: str) -> str:
    return b"".join(client.logs(name)).decode()
