"""Attempts at workloads and their tasks; consecutive equal attempts share one record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.decisions import Decision, Outcome
from mooring.model.lifecycle import TaskStatus
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
from mooring.model.workloads.lifetime.retries import is_image_trouble, is_loss, retries_for
from mooring.model.workloads.workload import Kind
from mooring.store.commit.status_changes import Applied
from mooring.store.core.chunks import chunks
from mooring.store.core.ids import new_id
from mooring.store.core.types import AnyRow
from mooring.store.tables import attempts, tasks, workloads

_UNSTARTED = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING})
_MAX_MESSAGE_LENGTH = 500
_AGAIN = (
    update(attempts)
    .where(attempts.c.id == bindparam("new_id"))
    .values(
        {
            name: bindparam(f"new_{name}", type_=attempts.c[name].type)
            for name in ("task_id", "message", "number", "last_at")
        }
    )
)


_Thing = tuple[UUID, int | None]
"""Object of an attempt: a workload, or one of its tasks by index."""


async def record(connection: AsyncConnection, new: Sequence[Attempt], now: datetime) -> None:
    """Write attempts in order. The caller has locked their workloads or is their only writer."""
    if new:
        last = await last_records(connection, {attempt.workload_id for attempt in new})
        await _write(connection, new, last, now)


async def record_starts(connection: AsyncConnection, applied: Applied, now: datetime) -> None:
    """Record the starts that agents reported: failures, and successes after earlier attempts."""
    failed = {c.task_id: c.reason for c, old in applied.tasks if c.new is TaskStatus.FAILED and old in _UNSTARTED}
    running = [change.task_id for change, _ in applied.tasks if change.new is TaskStatus.RUNNING]
    rows = [row for row in await _tried(connection, [*failed, *running]) if row.id in failed or row.attempt > 1]
    if not rows:
        return
    last = await last_records(connection, {row.workload_id for row in rows})
    new: list[Attempt] = []
    for row in rows:
        before = last.get((row.workload_id, row.task_index))
        if row.id in failed:
            reason = failed[row.id] or Reason("start-failed", "the task did not start")
            again = row.requeue and (
                row.failures < retries_for(reason.code, row.max_retries) or is_loss(TaskStatus.FAILED, reason.code)
            )
            limits = AttemptLimits(max_attempts=None) if again else START_LIMITS[Kind(row.kind)]
            phase = Phase.PREPARE if is_image_trouble(reason.code) else Phase.START
            result = judge(before and before[1], phase, limits, now)
            new.append(Attempt(row.workload_id, phase, result, reason.code, reason.message, row.id, row.task_index))
        elif before is not None and before[1].attempt.result is not Result.SUCCESS:
            new.append(Attempt(row.workload_id, Phase.START, Result.SUCCESS, task_id=row.id, task_index=row.task_index))
    await _write(connection, new, last, now)


def of_decisions(conflicts: Iterable[tuple[Decision, str]], failed: Iterable[Decision]) -> list[Attempt]:
    """Return the attempts in a pass's decisions: binds that hit a conflict, and placements ended by a plugin error."""
    return [
        *(Attempt(decision.workload.id, Phase.BIND, Result.RETRY, "conflict", why) for decision, why in conflicts),
        *(
            Attempt(decision.workload.id, Phase.PLACE, Result.GIVE_UP, decision.reason.code, decision.reason.message)
            for decision in failed
            if decision.outcome is Outcome.ERROR and decision.reason is not None
        ),
    ]


async def last_records(
    connection: AsyncConnection, workload_ids: Iterable[UUID]
) -> dict[_Thing, tuple[UUID, AttemptRecord]]:
    """Return the newest record of each of these workloads and of each of their tasks, with its id."""
    found: dict[_Thing, tuple[UUID, AttemptRecord]] = {}
    for part in chunks(sorted(set(workload_ids))):
        for row in await connection.execute(_records().where(attempts.c.workload_id.in_(part))):
            found[row.workload_id, row.task_index] = row.id, _record(row)
    return found


async def of_workload(connection: AsyncConnection, workload_id: UUID, *, limit: int) -> list[AttemptRecord]:
    """Return the newest records up to the limit, oldest first."""
    newest = (
        select(attempts.c.id)
        .where(attempts.c.workload_id == workload_id)
        .order_by(attempts.c.last_at.desc(), attempts.c.id.desc())
        .limit(limit)
    )
    return [_record(row) for row in await connection.execute(_records().where(attempts.c.id.in_(newest)))]


async def _write(
    connection: AsyncConnection,
    new: Sequence[Attempt],
    last: dict[_Thing, tuple[UUID, AttemptRecord]],
    now: datetime,
) -> None:
    added: dict[UUID, AttemptRecord] = {}
    changed: dict[UUID, AttemptRecord] = {}
    for attempt in new:
        thing = (attempt.workload_id, attempt.task_index)
        before = last.get(thing)
        if before is None or not before[1].takes(attempt):
            record_id, record = new_id(), AttemptRecord(attempt, 1, now, now)
            added[record_id] = record
        else:
            record_id, record = before[0], replace(before[1], attempt=attempt, number=before[1].number + 1, last_at=now)
            (added if record_id in added else changed)[record_id] = record
        last[thing] = record_id, record
    if added:
        await connection.execute(insert(attempts), [_row(record_id, record) for record_id, record in added.items()])
    if changed:
        again = [{f"new_{name}": value for name, value in _row(*one).items()} for one in changed.items()]
        await connection.execute(_AGAIN, again)


def _row(record_id: UUID, record: AttemptRecord) -> dict[str, Any]:
    attempt = record.attempt
    return {
        "id": record_id,
        "workload_id": attempt.workload_id,
        "task_id": attempt.task_id,
        "phase": attempt.phase,
        "result": attempt.result,
        "code": attempt.code,
        "message": attempt.message and attempt.message[:_MAX_MESSAGE_LENGTH],
        "number": record.number,
        "first_at": record.first_at,
        "last_at": record.last_at,
    }


def _records() -> Select[Any]:
    return (
        select(attempts, tasks.c.task_index)
        .join(tasks, tasks.c.id == attempts.c.task_id, isouter=True)
        .order_by(attempts.c.last_at, attempts.c.id)
    )


def _record(row: AnyRow) -> AttemptRecord:
    attempt = Attempt(
        row.workload_id, Phase(row.phase), Result(row.result), row.code, row.message, row.task_id, row.task_index
    )
    return AttemptRecord(attempt, row.number, row.first_at, row.last_at)


async def _tried(connection: AsyncConnection, task_ids: Sequence[UUID]) -> list[AnyRow]:
    rows: list[AnyRow] = []
    for part in chunks(task_ids):
        rows += await connection.execute(
            select(
                tasks.c.id,
                tasks.c.workload_id,
                tasks.c.task_index,
                tasks.c.attempt,
                tasks.c.requeue,
                tasks.c.failures,
                workloads.c.kind,
                workloads.c.max_retries,
            )
            .join(workloads, workloads.c.id == tasks.c.workload_id)
            .where(tasks.c.id.in_(part))
            .order_by(tasks.c.id)
        )
    return rows
