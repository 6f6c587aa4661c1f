"""The first phase of a two-phase bind: agents prepare the tasks or refuse with a reason; then all tasks start or none.

Holds record what to undo. They survive a crash of the leader, and the next leader continues with them: workloads that
are not admitted in time lose their placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from mooring.concurrency import backoff
from mooring.model.errors import Conflict
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.policy.holds import Purpose
from mooring.model.reasons import Reason
from mooring.model.workloads.lifetime.attempts import (
    START_LIMITS,
    Attempt,
    AttemptLimits,
    AttemptRecord,
    Phase,
    Result,
    judge,
)
from mooring.model.workloads.lifetime.retries import is_image_refused, is_loss
from mooring.model.workloads.workload import Kind
from mooring.store.commit import holds, transitions
from mooring.store.commit.holds import HeldWorkload
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.core.engine import Connection
from mooring.store.workloads import attempts, pending

LIMITS = AttemptLimits(max_attempts=5)
_FIRST_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 60.0


async def settle(connection: Connection, workload_id: UUID, *, term: int, now: datetime) -> Applied | None:
    """Admit a workload whose placement is ready, or release its expired hold. Return None if neither applies."""
    await lock_workloads(connection, [workload_id])
    for waiting in await holds.held_workloads(connection, workload_id):
        if now >= waiting.expires_at:
            return await _expire(connection, waiting, term=term, now=now)
        if waiting.ready:
            return await _admit(connection, workload_id, term=term, now=now)
    return None


async def take_reports(
    connection: Connection, prepared: Sequence[UUID], refused: Mapping[UUID, Reason], *, actor: str, now: datetime
) -> Applied:
    """Apply an agent's reports on tasks to prepare. Reports on other tasks change nothing."""
    await holds.mark_prepared(connection, prepared, now)
    result = Applied()
    for workload_id, task_id in (await holds.held_tasks(connection, list(refused))).items():
        applied = await _give_up(connection, workload_id, refused[task_id], now=now, actor=actor)
        result.tasks += applied.tasks
        result.workloads += applied.workloads
    return result


async def _expire(connection: Connection, waiting: HeldWorkload, *, term: int, now: datetime) -> Applied:
    if waiting.purpose is Purpose.PREPARE:
        message = await holds.preparation_message(connection, waiting.workload_id)
        reason = _expired(waiting, f"the agents were not ready ({message})" if message else "the agents were not ready")
        return await _give_up(connection, waiting.workload_id, reason, term=term, now=now)
    # Capacity that was not freed is no failure: the workload is pending like any other.
    reason = _expired(waiting, "the capacity was not released")
    return await holds.release(connection, waiting.workload_id, reason, actor="holds", now=now, term=term)


async def _admit(connection: Connection, workload_id: UUID, *, term: int, now: datetime) -> Applied | None:
    try:
        applied = await holds.admit(connection, workload_id, actor="holds", now=now, term=term)
    except Conflict as conflict:
        reason = Reason(conflict.code, conflict.message, "holds", "change")
        return await holds.release(connection, workload_id, reason, actor="holds", now=now, term=term)
    if applied is not None and _failures(await _last(connection, workload_id)):
        # Restart the count of failures.
        await attempts.record(connection, [Attempt(workload_id, Phase.PREPARE, Result.SUCCESS)], now)
    return applied


async def _give_up(
    connection: Connection,
    workload_id: UUID,
    reason: Reason,
    *,
    now: datetime,
    term: int | None = None,
    actor: str = "holds",
) -> Applied:
    """Requeue all tasks of the workload; after a failure with backoff, after too many fail it or lower its priority."""
    if is_loss(TaskStatus.FAILED, reason.code):
        return await holds.release(connection, workload_id, reason, actor=actor, now=now, term=term)
    last = await _last(connection, workload_id)
    workload = (await lock_workloads(connection, [workload_id]))[workload_id]
    hopeless = is_image_refused(reason.code) and workload.kind == Kind.SESSION
    result = judge(last, Phase.PREPARE, START_LIMITS[Kind.SESSION] if hopeless else LIMITS, now)
    attempt = Attempt(workload_id, Phase.PREPARE, result, reason.code, reason.message)
    await attempts.record(connection, [attempt], now)
    if result is Result.GIVE_UP and workload.deprioritise:
        reason = workload.lower(reason)
        await pending.set_priority(connection, workload_id, workload.priority)
    elif result is Result.GIVE_UP:
        held = await holds.by_workload(connection, workload_id)
        changes = [Change(hold.task_id, TaskStatus.FAILED, reason) for hold in held]
        return await transitions.apply(
            connection, changes, actor=actor, now=now, term=term, ended={workload_id: (WorkloadStatus.FAILED, reason)}
        )
    seconds = backoff.delay(_failures(last) + 1, _FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS, jitter=0)
    applied = await holds.release(connection, workload_id, reason, actor=actor, now=now, term=term)
    waiting = [change.task_id for change, _ in applied.tasks if change.new is TaskStatus.PENDING]
    await pending.postpone(connection, waiting, now + timedelta(seconds=seconds))
    return applied


async def _last(connection: Connection, workload_id: UUID) -> AttemptRecord | None:
    """Return the last attempt of the workload as a whole."""
    found = (await attempts.last_records(connection, [workload_id])).get((workload_id, None))
    return found and found[1]


def _failures(last: AttemptRecord | None) -> int:
    """Return the number of consecutive failures to prepare."""
    if last is None or last.attempt.phase is not Phase.PREPARE or last.attempt.result is Result.SUCCESS:
        return 0
    return last.number


def _expired(waiting: HeldWorkload, what: str) -> Reason:
    until = waiting.expires_at.isoformat(timespec="seconds")
    return Reason("hold-expired", f"Its capacity was held until {until}, and {what} by then", "holds", "change")
