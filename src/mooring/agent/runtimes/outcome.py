"""The outcome of an exit: the status to report, a stable code and a reason."""

from __future__ import annotations

import signal

from mooring.agent.runtimes.contract import Observed, Status
from mooring.agent.runtimes.records import ContainerExit, ExitRecord
from mooring.wire.agents.agent_protocol import LastExit

FAILURES = {
    "node-rebooted": "the node was restarted while the task was on it",
    "supervisor-died": "the task's supervisor was killed; the remaining processes were stopped",
    "agent-stopped": "the node's agent was stopped together with its tasks",
    "container-removed": "one of its containers was removed by someone else",
    "unhealthy": "killed because its liveness probe failed",
    "interrupted": "the task was ended on the node from outside",
}


def outcome(record: ExitRecord, *, gone: bool = True, acknowledged: bool = False) -> Observed:
    """Return the observed end for an exit record: a requested stop is not a failure."""
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
        crashes=record.crashes,
        code=code,
        reason=reason,
        acknowledged=acknowledged,
    )


def last_exit(ended: ContainerExit) -> LastExit:
    """Return the report on a container that ended and is restarted."""
    code, text = _cause(ended)
    return LastExit(code=code, reason=_about(ended, text), exit_code=ended.exit_code, retry_at=ended.retry_at)


def _failure(record: ExitRecord) -> tuple[str, str]:
    code, text = _cause(record)
    if record.restarts:
        text += f" after {record.restarts} restart{'s' if record.restarts > 1 else ''}"
    return code, _about(record, text)


def _cause(record: ExitRecord | ContainerExit) -> tuple[str, str]:
    if record.out_of_memory:
        return "out-of-memory", "killed by the system for using more memory than requested"
    if record.signal is not None:
        return "killed", f"killed by signal {record.signal} ({_signal_name(record.signal)})"
    return "exited", f"exited with code {record.exit_code}"


def _about(record: ExitRecord | ContainerExit, text: str) -> str:
    return f"container {record.container!r}: {text}" if record.container else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time signal"
