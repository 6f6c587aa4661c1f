"""Real jobs: time limits with warnings, retries, dependencies."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.client import Client
from mooring.wire.workloads.workloads import WorkloadDetail, WorkloadRequest
from tests.system.conftest import Servers
from tests.system.servers import eventually

PATIENT = "trap 'echo warned' USR1; trap '' TERM; echo ready; while :; do sleep 0.05 2>/dev/null; done"
FAILING = 'echo "attempt $MOORING_ATTEMPT"; test "$MOORING_ATTEMPT" = 2'


@pytest.mark.slow
def test_a_job_is_warned_before_its_time_limit_and_a_failed_one_is_retried(servers: Servers) -> None:
    server = servers.start("--node-name", "here")
    with server.client() as client:
        _submit(client, "patient", PATIENT, time=16, signal="USR1@8")
        _submit(client, "failing", FAILING, retries=1)
        _submit(client, "next", "exit 0", dependencies=[{"workload": "failing"}])
        _submit(client, "in-vain", "exit 0", dependencies=[{"workload": "patient"}])
        _submit(client, "told", "exit 0", dependencies=[{"workload": "in-vain", "condition": "after-fail"}])
        patient = _ended(client, "patient")
        assert patient.reason is not None
        assert (patient.status, patient.reason["code"]) == ("FAILED", "time-limit")
        assert _output(client, "patient").split().count("warned") == 1
        failing = _ended(client, "failing")
        assert [(task.attempt, task.status) for task in failing.tasks] == [(1, "FAILED"), (2, "SUCCEEDED")]
        assert failing.status == "SUCCEEDED"
        assert [_output(client, "failing", attempt) for attempt in (1, None)] == ["attempt 1\n", "attempt 2\n"]
        follower = _ended(client, "next")
        assert follower.started_at is not None
        assert failing.ended_at is not None
        assert (follower.status, follower.started_at >= failing.ended_at) == ("SUCCEEDED", True)
        never_started = _ended(client, "in-vain")
        assert never_started.reason is not None
        assert (never_started.status, never_started.reason["code"]) == ("CANCELLED", "dependency-failed")
        assert _ended(client, "told").status == "SUCCEEDED"
        server.assert_books_agree()


def _submit(client: Client, name: str, script: str, **terms: Any) -> None:
    container = {"command": ["sh", "-c", script], "resources": {"cpu": "100m"}}
    request = {"name": name, "containers": [container], "stop_grace_seconds": 0, **terms}
    client.submit(WorkloadRequest.model_validate(request))


def _ended(client: Client, name: str) -> WorkloadDetail:
    """The workload, once it has ended."""
    eventually(lambda: client.workload(name).ended_at is not None)
    return client.workload(name)


def _output(client: Client, name: str, attempt: int | None = None) -> str:
    return b"".join(client.logs(name, attempt=attempt)).decode()
