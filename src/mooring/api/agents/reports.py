"""An agent's report on the tasks of its node: from the message to the committed statuses, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mooring.api.agents.agent_session import AgentSession
from mooring.api.agents.agent_text import one_line, printable, storable
from mooring.binding import preparing
from mooring.clock import now
from mooring.model import lifecycle
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.workloads.lifetime.retries import PORT_IN_USE
from mooring.store.commit import holds, transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import lock_owners
from mooring.store.commit.status_changes import Applied, Change, LastExit
from mooring.store.core.engine import (
    Connection,
    Database,
)
from mooring.store.nodes import (
    desired_tasks,
    nodes,
)
from mooring.store.workloads import attempts
from mooring.telemetry import metrics
from mooring.wire.agents import agent_protocol as wire
from mooring.wire.agents.agent_protocol import Report, TaskReport

_MAX_ADDRESS = 63
_MAX_CODE = 64


async def apply_report(database: Database, session: AgentSession, message: Report) -> None:
    """Commit the statuses that an agent reports. An agent can report only tasks of its own node.

    A report may arrive twice: a status that a task already has changes nothing.
    """
    if message.tasks:
        applied = await database.write(lambda connection: _apply(connection, session, message.tasks))
        log_applied(applied)
        for change, _ in applied.tasks:
            metrics.agent_reports.labels(change.new.value).inc()


async def _apply(connection: Connection, session: AgentSession, reported: Sequence[TaskReport]) -> Applied:
    at = now()
    task_ids = [task.task_id for task in reported]
    # All workloads before any task or node, as everywhere; and no task moves to another node from here on.
    await lock_owners(connection, task_ids)
    own = await desired_tasks.owned(connection, session.node_id, task_ids)
    reports = [task for task in reported if task.task_id in own]

    prepared = [task.task_id for task in reports if task.status == "PREPARED"]
    failed = {task.task_id: _reason(task) for task in reports if task.status == "FAILED"}
    changes = [change for task in reports if (change := _change(task)) is not None]
    applied = await _commit(connection, prepared, failed, changes, actor=f"agent:{session.node_name}", at=at)

    refused = [change.task_id for change, _ in applied.tasks if change.reason and change.reason.code == PORT_IN_USE]
    if refused:
        # In the same transaction, so that the next placement does without these ports.
        await nodes.add_occupied_ports(connection, session.node_id, [port for id in refused for port in own[id]], at)
    progress = {task.task_id: _reason(task) for task in reports if task.status == "PREPARING" and task.reason}
    await desired_tasks.note_progress(connection, progress)
    await holds.extend(connection, [task.task_id for task in reports if task.heard], at)
    if gone := [task.task_id for task in reports if task.gone]:
        await transitions.free_lost(connection, gone, at)
    return applied


async def fail_unstarted(database: Database, session: AgentSession, refused: Mapping[UUID, Reason]) -> None:
    """Fail tasks that cannot get their secrets, before they start; the agent reports when nothing of them is left."""

    async def work(connection: Connection) -> Applied:
        await lock_owners(connection, list(refused))
        unstarted = await desired_tasks.unstarted(connection, session.node_id, list(refused))
        reasons = {task_id: refused[task_id] for task_id in unstarted}
        changes = [Change(task_id, TaskStatus.FAILED, reason, freed=False) for task_id, reason in reasons.items()]
        return await _commit(connection, [], reasons, changes, actor="secrets", at=now())

    log_applied(await database.write(work))


async def _commit(
    connection: Connection,
    prepared: Sequence[UUID],
    failed: Mapping[UUID, Reason],
    changes: Sequence[Change],
    *,
    actor: str,
    at: datetime,
) -> Applied:
    """Apply the results of preparations first, then the changes of all other tasks."""
    held = await preparing.take_reports(connection, prepared, failed, actor=actor, now=at)
    settled = {change.task_id for change, _ in held.tasks}
    others = [change for change in changes if change.task_id not in settled]
    applied = await transitions.apply(connection, others, actor=actor, now=at)
    applied.tasks += held.tasks
    applied.workloads += held.workloads
    await attempts.record_starts(connection, applied, at)
    return applied


def _change(report: TaskReport) -> Change | None:
    if report.status == "PREPARED" or report.heard:
        return None
    status = TaskStatus(report.status)
    if status not in lifecycle.AGENT_REPORTS or (lifecycle.is_end(status) and not report.gone):
        # Its end counts when nothing is left of it on the node.
        return None
    # The reason of the request to stop stays.
    reason = _reason(report) if report.reason and report.code != "stopped" else None
    return Change(
        report.task_id,
        status,
        reason,
        exit_code=_exit_code(report.exit_code),
        restarts=max(0, storable(report.restarts)),
        crashes=max(0, storable(report.crashes)),
        last_exit=_last_exit(report.last_exit),
        freed=report.gone,
        ready=report.ready,
        digests={printable(name): printable(digest) for name, digest in report.digests.items()},
        address=printable(report.address)[:_MAX_ADDRESS] if report.address else None,
    )


def _last_exit(ended: wire.LastExit | None) -> LastExit | None:
    if ended is None:
        return None
    retry_at = None if ended.retry_at is None else _soon(ended.retry_at)
    return LastExit(printable(ended.code)[:_MAX_CODE], one_line(ended.reason), _exit_code(ended.exit_code), retry_at)


def _exit_code(reported: int | None) -> int | None:
    return None if reported is None else storable(reported)


def _soon(unix_time: float) -> datetime | None:
    """Return the time of a restart by the clock of the node; None if that is not a time of today."""
    latest = now() + timedelta(days=1)
    if not 0 <= unix_time <= latest.timestamp():
        return None
    return datetime.fromtimestamp(unix_time, UTC)


def _reason(report: TaskReport) -> Reason:
    code, message = printable(report.code)[:_MAX_CODE], one_line(report.reason)
    return Reason(code or "agent", message or "the agent gave no reason", "agent", "change")
