"""The first phase of a two-phase bind: agents make ready, or say why they cannot; then all tasks start or none does.

The holds are the record of what is to be undone. They outlive a crash of the leader, and who leads next goes on from
them: whatever is not admitted in time is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from mooring.model.attempts import Attempt, AttemptLimits, Phase, Result, judge
from mooring.model.errors import Conflict
from mooring.model.holds import Purpose
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.store import attempts, holds, transitions, workloads
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection
from mooring.store.holds import Waiting

LIMITS = AttemptLimits(max_attempts=5)
_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0


async def settle(connection: Connection, waiting: Waiting, *, term: int, now: datetime) -> Applied | None:
    """Admit a workload whose place is ready, give up one whose time is over; None while neither is so.

    Whatever was decided about it meanwhile is left as it is.
    """
    if now >= waiting.expires_at:
        if waiting.purpose is Purpose.PREPARE:
            return await _give_up(connection, waiting.workload_id, _expired(waiting), term=term, now=now)
        # That victims take their time is no failure of who waits for them.
        return await holds.release(
            connection, waiting.workload_id, _expired(waiting), actor="holds", now=now, term=term
        )
    if not waiting.ready:
        return None
    try:
        return await holds.admit(connection, waiting.workload_id, actor="holds", now=now, term=term)
    except Conflict as conflict:
        if conflict.code == "hold-unknown":
            return None
        reason = Reason(conflict.code, conflict.message, "holds", "change")
        return await holds.release(connection, waiting.workload_id, reason, actor="holds", now=now, term=term)


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


async def _give_up(
    connection: Connection,
    workload_id: UUID,
    reason: Reason,
    *,
    now: datetime,
    term: int | None = None,
    actor: str = "holds",
) -> Applied:
    """All tasks of the workload wait again, later after every failure; after too many it fails."""
    last = (await attempts.last_records(connection, [workload_id])).get((workload_id, None))
    result = judge(last and last[1], Phase.PREPARE, LIMITS, now)
    attempt = Attempt(workload_id, Phase.PREPARE, result, reason.code, reason.message)
    await attempts.record(connection, [attempt], now)
    if result is Result.GIVE_UP:
        held = await holds.by_workload(connection, workload_id)
        changes = [Change(hold.task_id, TaskStatus.FAILED, reason) for hold in held]
        return await transitions.apply(
            connection, changes, actor=actor, now=now, term=term, failed={workload_id: reason}
        )
    failures = last[1].number if last is not None and last[1].attempt.phase is Phase.PREPARE else 0
    seconds = min(_FIRST_BACKOFF_SECONDS * 2**failures, _LONGEST_BACKOFF_SECONDS)
    applied = await holds.release(connection, workload_id, reason, actor=actor, now=now, term=term)
    waiting = [change.task_id for change, _ in applied.tasks if change.new is TaskStatus.PENDING]
    await workloads.postpone(connection, waiting, now + timedelta(seconds=seconds))
    return applied


def _expired(waiting: Waiting) -> Reason:
    what = "the agents were not ready" if waiting.purpose is Purpose.PREPARE else "the room did not come free"
    until = waiting.expires_at.isoformat(timespec="seconds")
    return Reason("hold-expired", f"Its place was kept until {until}, and {what} by then", "holds", "change")
