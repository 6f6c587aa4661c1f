"""Replacements of ended tasks: the next attempt of a service's task, of a retried one, or of a whole gang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, and_, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus, is_end
from mooring.model.workloads.lifetime.health import LOOPS_AFTER, crashes_after
from mooring.model.workloads.lifetime.retries import is_loss, uses_retry
from mooring.model.workloads.workload import Kind
from mooring.store.commit import transitions
from mooring.store.commit.locked_workloads import LoadedWorkload, lock_workloads
from mooring.store.commit.new_tasks import EarlierEnd, NewTask, insert_tasks
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.batch_sql import among
from mooring.store.core.chunks import chunks
from mooring.store.core.ids import new_id
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, workloads

_ENDS = [status for status in TaskStatus if is_end(status)]
_STAYING = OCCUPYING - {TaskStatus.TERMINATING}
# All tasks of such a session restart when one of them has to be replaced.
_is_gang_session = and_(workloads.c.kind == Kind.SESSION, workloads.c.array.is_(None), workloads.c.replicas > 1)


@dataclass(frozen=True, slots=True)
class EndedTask:
    """A current task that has ended and needs a replacement: of a service, or one that is retried."""

    task_id: UUID
    workload_id: UUID
    index: int
    attempt: int
    status: TaskStatus
    ended_at: datetime | None
    started_at: datetime | None
    failed: bool = False
    """The task itself failed, which uses up a retry."""
    code: str | None = None
    """The code of the reason for its end."""
    earlier_crashes: int = 0
    """Ends soon after a start, in a row, of the attempts before it."""
    crashes: int = 0
    """The same, of this attempt, as its agent counted them."""

    @property
    def crashes_in_a_row(self) -> int:
        if is_loss(self.status, self.code):
            return self.earlier_crashes + self.crashes
        return crashes_after(
            self.status, self.started_at, self.ended_at, earlier=self.earlier_crashes, own=self.crashes
        )


class Replacement(NamedTuple):
    """A task to replace, and the earliest time of its next placement. `failed`: the task itself failed.

    `crashes`: the number of ends in a row soon after a start, its own included.
    """

    task_id: UUID
    workload_id: UUID
    not_before: datetime | None = None
    failed: bool = False
    crashes: int = 0


async def tasks_to_replace(connection: AsyncConnection, limit: int = 1000) -> list[EndedTask]:
    """Return ended tasks that need a replacement. A gang is replaced when the last task that has to leave has ended."""
    rows = await connection.execute(_tasks_to_replace(limit))
    return [
        EndedTask(
            row.id,
            row.workload_id,
            row.task_index,
            row.attempt,
            TaskStatus(row.status),
            row.ended_at,
            row.started_at,
            _failed(row),
            (row.reason or {}).get("code"),
            row.earlier_crashes,
            row.crashes,
        )
        for row in rows
    ]


@cache
def _tasks_to_replace(limit: int) -> Select[Any]:
    sibling = tasks.alias()
    leaves = and_(sibling.c.requeue, sibling.c.status == TaskStatus.TERMINATING)
    still_there = select(sibling.c.id).where(
        sibling.c.workload_id == workloads.c.id,
        or_(leaves, and_(_is_gang_session, sibling.c.status.in_(_STAYING))),
    )
    is_gang = or_(_is_gang_session, workloads.c.gang, workloads.c.single_node, workloads.c.min_tasks.is_not(None))
    return (
        select(
            tasks.c.id,
            tasks.c.workload_id,
            tasks.c.task_index,
            tasks.c.attempt,
            tasks.c.status,
            tasks.c.ended_at,
            tasks.c.started_at,
            tasks.c.reason,
            tasks.c.preempted_by,
            tasks.c.earlier_crashes,
            tasks.c.crashes,
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            tasks.c.current,
            tasks.c.status.in_(_ENDS),
            or_(workloads.c.kind == Kind.DEPLOYMENT, and_(tasks.c.requeue, tasks.c.status != TaskStatus.SUCCEEDED)),
            not_(and_(tasks.c.requeue, is_gang, still_there.exists())),
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
        )
        .order_by(tasks.c.id)
        .limit(limit)
    )


def _failed(row: AnyRow) -> bool:
    """Return whether the task itself failed: its node was not lost, and it was neither evicted nor preempted."""
    return row.preempted_by is None and uses_retry(TaskStatus(row.status), (row.reason or {}).get("code"))


async def replace_tasks(
    connection: AsyncConnection,
    replacements: Iterable[Replacement],
    *,
    actor: str,
    now: datetime,
    term: int | None,
    renewed: bool = False,
) -> int:
    """Replace tasks by pending ones (attempt + 1), and return how many.

    They have the template of the tasks that they replace; with `renewed`, the current template of the workload.
    """
    wanted = {replacement.task_id: replacement for replacement in replacements}
    locked = await lock_workloads(connection, {replacement.workload_id for replacement in wanted.values()})
    replaced = await _replaceable(connection, sorted(wanted), locked)
    new = _new_attempts(replaced, wanted, locked, renewed=renewed)
    for part in chunks([row.id for row in replaced]):
        await connection.execute(update(tasks).where(tasks.c.id.in_(part)).values(current=False))
    writes = batch_sql.Writes.on(connection)
    insert_tasks(writes, new, now)
    await writes.execute(connection)
    affected = {task.workload_id for task in new}
    # Decisions that were made before are outdated: the workload has other tasks now.
    for part in chunks(sorted(affected)):
        await connection.execute(
            update(workloads).where(workloads.c.id.in_(part)).values(version=workloads.c.version + 1)
        )
    await transitions.apply(connection, [], actor=actor, now=now, term=term, also=affected)
    versions = {id: locked[id].version + 1 for id in affected}
    news = [events.NewEvent("workload", id, versions[id], "replaced", None, id) for id in sorted(affected)]
    for row, task in zip(replaced, new, strict=True):
        if row.earlier_crashes < LOOPS_AFTER <= task.earlier.crashes:
            id, details = task.workload_id, _crash_details(task)
            news.append(events.NewEvent("workload", id, versions[id], events.CRASH_LOOPING, None, id, details))
    await events.append(connection, news, now)
    return len(new)


async def _replaceable(
    connection: AsyncConnection, task_ids: Sequence[UUID], locked: Mapping[UUID, LoadedWorkload]
) -> list[AnyRow]:
    """Return the current tasks among these whose workloads continue."""
    found: list[AnyRow] = []
    for part in chunks(task_ids):
        rows = await connection.execute(
            select(tasks, workloads.c.requested_slots.label("request"), workloads.c.revision.label("newest"))
            .join(workloads, workloads.c.id == tasks.c.workload_id)
            .where(tasks.c.id.in_(part), tasks.c.current)
        )
        for row in rows:
            workload = locked[row.workload_id]
            if not workload.stopping and workload.ended_at is None:
                found.append(row)
    return found


def _new_attempts(
    replaced: Sequence[AnyRow],
    wanted: Mapping[UUID, Replacement],
    locked: Mapping[UUID, LoadedWorkload],
    *,
    renewed: bool,
) -> list[NewTask]:
    # A gang is retried as a whole: the failure of one task counts for all.
    gang_failures: dict[UUID, int] = defaultdict(int)
    for row in replaced:
        failures = row.failures + wanted[row.id].failed
        gang_failures[row.workload_id] = max(gang_failures[row.workload_id], failures)
    return [
        NewTask(
            new_id(),
            row.workload_id,
            row.task_index,
            row.request if renewed else row.requested_slots,
            row.attempt + 1,
            wanted[row.id].not_before,
            row.failures + wanted[row.id].failed if locked[row.workload_id].alone else gang_failures[row.workload_id],
            row.newest if renewed else row.revision,
            EarlierEnd(wanted[row.id].crashes, row.exit_code, _last_reason(row)),
            # A task on its nominated node was moved there; its own replacement goes anywhere.
            None if row.node_name == row.nominated_node else row.nominated_node,
        )
        for row in replaced
    ]


def _last_reason(row: AnyRow) -> dict[str, Any] | None:
    """Return why the replaced task ended, as its replacement shows it; None if it has not ended."""
    if not is_end(TaskStatus(row.status)):
        return None
    if row.reason is not None:
        return {"code": row.reason["code"], "message": row.reason["message"]}
    if row.exit_code is not None:
        return {"code": "exited", "message": f"exited with code {row.exit_code}"}
    return {"code": row.status.lower(), "message": f"the task was {row.status.lower()}"}


def _crash_details(task: NewTask) -> dict[str, Any]:
    return {
        "task_index": task.task_index,
        "crashes": task.earlier.crashes,
        "exit_code": task.earlier.exit_code,
        **(task.earlier.reason or {}),
        "next_retry_at": None if task.not_before is None else task.not_before.isoformat(),
    }


async def tasks_of_terminating_workloads(connection: AsyncConnection) -> list[tuple[UUID, TaskStatus]]:
    """Return tasks that are alive in workloads that terminate because another of their tasks failed."""
    return [(row.id, TaskStatus(row.status)) for row in await connection.execute(_tasks_of_terminating_workloads())]


@cache
def _tasks_of_terminating_workloads() -> Select[Any]:
    return (
        select(tasks.c.id, tasks.c.status)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            workloads.c.status == WorkloadStatus.TERMINATING,
            tasks.c.status.in_([s for s in TaskStatus if not is_end(s) and s is not TaskStatus.TERMINATING]),
        )
        .order_by(tasks.c.id)
    )


async def gang_tasks_to_restart(connection: AsyncConnection) -> list[tuple[UUID, TaskStatus]]:
    """Return tasks on nodes of gang sessions in which another task is to be replaced."""
    # A query of its own, since it almost always returns nothing.
    short = list((await connection.execute(_workloads_to_restart())).scalars())
    if not short:
        return []
    return [
        (row.id, TaskStatus(row.status)) for row in await connection.execute(_gang_tasks_to_restart(), {"ids": short})
    ]


@cache
def _workloads_to_restart() -> Select[Any]:
    ended = tasks.c.status.in_([TaskStatus.FAILED, TaskStatus.LOST])
    return select(tasks.c.workload_id).where(tasks.c.current, tasks.c.requeue, ended).distinct()


@cache
def _gang_tasks_to_restart() -> Select[Any]:
    return (
        select(tasks.c.id, tasks.c.status)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            among(workloads.c.id),
            _is_gang_session,
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
            tasks.c.status.in_(_STAYING),
        )
        .order_by(tasks.c.id)
    )
