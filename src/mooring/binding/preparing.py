"""The first phase of a two-phase bind: agents make ready, or say why they cannot; then all tasks start or none does.

The holds are the record of what is to be undone. They outlive a crash of the leader, and who leads next goes on from
them: whatever is not admitted in time is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.attempts import START_LIMITS, Attempt, AttemptLimits, AttemptRecord, Phase, Result, judge
from mooring.model.errors import Conflict
from mooring.model.holds import Purpose
from mooring.model.lifecycle import TaskStatus, WorkloadStatus
from mooring.model.reasons import Reason
from mooring.model.retries import is_image_refused
from mooring.model.workloads import Kind
from mooring.store import attempts, holds, transitions, workloads
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection
from mooring.store.holds import Waiting
from mooring.store.loading import lock_workloads

LIMITS = AttemptLimits(max_attempts=5)
_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0


async def settle(connection: Connection, workload_id: UUID, *, term: int, now: datetime) -> Applied | None:
    """Admit a workload whose place is ready, give up one whose time is over; None while neither is so."""
    await lock_workloads(connection, [workload_id])
    for waiting in await holds.waiting(connection, workload_id):
        if now >= waiting.expires_at:
            return await _expire(connection, waiting, term=term, now=now)
        if waiting.ready:
            return await _admit(connection, workload_id, term=term, now=now)
    return None


async def take_reports(
    connection: Connection, prepared: Sequence[UUID], refused: Mapping[UUID, Reason], *, actor: str, now: datetime
) -> Applied:
    """What an agent says of the tasks that it was to make ready; of others it changes nothing."""
    await holds.note_prepared(connection, prepared, now)
    result = Applied()
    for workload_id, task_id in (await holds.held_tasks(connection, list(refused))).items():
        applied = await _give_up(connection, workload_id, refused[task_id], now=now, actor=actor)
        result.tasks += applied.tasks
        result.workloads += applied.workloads
    return result


async def _expire(connection: Connection, waiting: Waiting, *, term: int, now: datetime) -> Applied:
    if waiting.purpose is Purpose.PREPARE:
        told = await holds.progress(connection, waiting.workload_id)
        reason = _expired(waiting, f"the agents were not ready ({told})" if told else "the agents were not ready")
        return await _give_up(connection, waiting.workload_id, reason, term=term, now=now)
    # Room that did not come free is no failure: the workload waits for it as all others do.
    reason = _expired(waiting, "the room did not come free")
    return await holds.release(connection, waiting.workload_id, reason, actor="holds", now=now, term=term)


async def _admit(connection: Connection, workload_id: UUID, *, term: int, now: datetime) -> Applied | None:
    try:
        applied = await holds.admit(connection, workload_id, actor="holds", now=now, term=term)
    except Conflict as conflict:
        reason = Reason(conflict.code, conflict.message, "holds", "change")
        return await holds.release(connection, workload_id, reason, actor="holds", now=now, term=term)
    if applied is not None and _failures(await _last(connection, workload_id)):
        # Failures are counted anew from here.
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
    """All tasks of the workload wait again, later after every failure; after too many it fails, or waits lower."""
    last = await _last(connection, workload_id)
    workload = (await lock_workloads(connection, [workload_id]))[workload_id]
    hopeless = is_image_refused(reason.code) and workload.kind == Kind.SESSION
    result = judge(last, Phase.PREPARE, START_LIMITS[Kind.SESSION] if hopeless else LIMITS, now)
    attempt = Attempt(workload_id, Phase.PREPARE, result, reason.code, reason.message)
    await attempts.record(connection, [attempt], now)
    if result is Result.GIVE_UP and workload.deprioritise:
        reason = workload.lower(reason)
        await workloads.set_priority(connection, workload_id, workload.priority)
    elif result is Result.GIVE_UP:
        held = await holds.by_workload(connection, workload_id)
        changes = [Change(hold.task_id, TaskStatus.FAILED, reason) for hold in held]
        return await transitions.apply(
            connection, changes, actor=actor, now=now, term=term, ended={workload_id: (WorkloadStatus.FAILED, reason)}
        )
    seconds = min(_FIRST_BACKOFF_SECONDS * 2 ** _failures(last), _LONGEST_BACKOFF_SECONDS)
    applied = await holds.release(connection, workload_id, reason, actor=actor, now=now, term=term)
    waiting = [change.task_id for change, _ in applied.tasks if change.new is TaskStatus.PENDING]
    await workloads.postpone(connection, waiting, now + timedelta(seconds=seconds))
    return applied


async def _last(connection: Connection, workload_id: UUID) -> AttemptRecord | None:
    """The last record about the workload as a whole."""
    found = (await attempts.last_records(connection, [workload_id])).get((workload_id, None))
    return found and found[1]


def _failures(last: AttemptRecord | None) -> int:
    """How often it could not be prepared, one time after the other."""
    if last is None or last.attempt.phase is not Phase.PREPARE or last.attempt.result is Result.SUCCESS:
        return 0
    return last.number


def _expired(waiting: Waiting, what: str) -> Reason:
    until = waiting.expires_at.isoformat(timespec="seconds")
    return Reason("hold-expired", f"Its place was kept until {until}, and {what} by then", "holds", "change")
