"""What an exit means: the status that the server is told, a stable code and the reason in words."""

from __future__ import annotations

import signal

from mooring.agent.records import ExitRecord
from mooring.agent.runtime import Observed, Status

FAILURES = {
    "node-rebooted": "the node was restarted while the task was on it",
    "supervisor-died": "the task's supervisor was killed; what was left of the task has been ended",
    "agent-stopped": "the node's agent was stopped together with its tasks",
    "container-removed": "one of its containers was removed from outside",
    "unhealthy": "killed since its liveness probe failed",
    "interrupted": "the task was ended from outside on the node",
}


def outcome(record: ExitRecord, *, gone: bool = True, acknowledged: bool = False) -> Observed:
    """The exit as the agent reports it: an exit that was asked for is no failure."""
    status: Status
    if record.stop_cause == "requested":
        status, code, reason = "CANCELLED", "stopped", "stopped as asked"
    elif failure := record.failure or record.stop_cause:
        status, code, reason = "FAILED", failure, FAILURES.get(failure, record.error or failure)
    elif record.error:
        status, code, reason = "FAILED", "start-failed", _about(record, record.error)
    elif record.exit_code == 0:
        status, code, reason = "SUCCEEDED", "", ""
    else:
        status, (code, reason) = "FAILED", _failure(record)
    return Observed(
        status=status,
        gone=gone,
        ran=record.ran,
        exit_code=record.exit_code,
        restarts=record.restarts,
        code=code,
        reason=reason,
        acknowledged=acknowledged,
    )


def _failure(record: ExitRecord) -> tuple[str, str]:
    if record.out_of_memory:
        code, text = "out-of-memory", "ended by the system for using more memory than it asked for"
    elif record.signal is not None:
        code, text = "killed", f"killed by signal {record.signal} ({_signal_name(record.signal)})"
    else:
        code, text = "exited", f"exited with code {record.exit_code}"
    if record.restarts:
        text += f" after {record.restarts} restart{'s' if record.restarts > 1 else ''}"
    return code, _about(record, text)


def _about(record: ExitRecord, text: str) -> str:
    return f"container {record.container!r}: {text}" if record.container else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time signal"
