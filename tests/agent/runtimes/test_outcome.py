"""Outcomes of exits."""

from __future__ import annotations

import pytest

from mooring.agent.runtimes.outcome import outcome
from mooring.agent.runtimes.records import ExitRecord


@pytest.mark.parametrize(
    ("exit_fields", "status", "code", "reason"),
    [
        ({"exit_code": 0}, "SUCCEEDED", "", ""),
        ({"exit_code": 3}, "FAILED", "exited", "exited with code 3"),
        ({"exit_code": 3, "restarts": 1}, "FAILED", "exited", "exited with code 3 after 1 restart"),
        ({"exit_code": 137, "signal": 9}, "FAILED", "killed", "killed by signal 9 (SIGKILL)"),
        (
            {"exit_code": 137, "signal": 9, "out_of_memory": True},
            "FAILED",
            "out-of-memory",
            "killed by the system for using more memory than requested",
        ),
        ({"exit_code": 143, "signal": 15, "stop_cause": "requested"}, "CANCELLED", "stopped", "stopped as asked"),
        ({"exit_code": 0, "stop_cause": "requested"}, "CANCELLED", "stopped", "stopped as asked"),
        (
            {"exit_code": 127, "error": "cannot start 'foo': no such file or directory"},
            "FAILED",
            "start-failed",
            "cannot start 'foo': no such file or directory",
        ),
        ({"exit_code": 2, "container": "web"}, "FAILED", "exited", "container 'web': exited with code 2"),
    ],
)
def test_an_exit_has_a_status_a_code_and_a_reason(exit_fields, status, code, reason):
    found = outcome(ExitRecord(ended_at=0.0, **exit_fields))
    assert (found.status, found.code, found.reason) == (status, code, reason)
    assert found.gone


@pytest.mark.parametrize("cause", ["agent-stopped", "interrupted"])
def test_an_end_that_the_server_did_not_ask_for_is_a_failure(cause):
    found = outcome(ExitRecord(ended_at=0.0, exit_code=143, signal=15, stop_cause=cause))
    assert (found.status, found.code) == ("FAILED", cause)
