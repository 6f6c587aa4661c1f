"""Tasks that ended and come again: who needs a successor, who has to leave for it, and the successors themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Select, and_, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, WorkloadStatus, is_end
from mooring.model.retries import is_loss
from mooring.model.workloads import Kind
from mooring.store import events, sets, transitions
from mooring.store.chunks import chunks
from mooring.store.ids import new_id
from mooring.store.loading import lock_workloads
from mooring.store.sets import among
from mooring.store.tables import tasks, workloads
from mooring.store.types import AnyRow
from mooring.store.workloads import NewTask, insert_tasks

_ENDS = [status for status in TaskStatus if is_end(status)]
_STAYING = OCCUPYING - {TaskStatus.TERMINATING}
# The tasks of such a session work together: what is left of it when one is gone starts again with that one.
_works_together = and_(workloads.c.kind == Kind.SESSION, workloads.c.array.is_(None), workloads.c.replicas > 1)


@dataclass(frozen=True, slots=True)
class Ended:
    """A current task that ended and is to be replaced: a service's, or one that is to be tried again."""

    task_id: UUID
    workload_id: UUID
    index: int
    attempt: int
    status: TaskStatus
    ended_at: datetime | None
    started_at: datetime | None
    failed: bool = False
    """By its own doing: it uses up a retry."""
    code: str | None = None
    """Of the reason for its end."""


class Successor(NamedTuple):
    """Who is replaced, and when at the earliest its successor is placed. `failed`: it failed by its own doing."""

    task_id: UUID
    workload_id: UUID
    not_before: datetime | None = None
    failed: bool = False


async def ended_replicas(connection: AsyncConnection, limit: int = 1000) -> list[Ended]:
    """What starts together waits again together: it is replaced when the last of those who leave has left."""
    rows = await connection.execute(_ended_replicas(limit))
    return [
        Ended(
            row.id,
            row.workload_id,
            row.task_index,
            row.attempt,
            TaskStatus(row.status),
            row.ended_at,
            row.started_at,
            _failed(row),
            (row.reason or {}).get("code"),
        )
        for row in rows
    ]


@cache
def _ended_replicas(limit: int) -> Select[Any]:
    sibling = tasks.alias()
    leaves = and_(sibling.c.requeue, sibling.c.status == TaskStatus.TERMINATING)
    still_there = select(sibling.c.id).where(
        sibling.c.workload_id == workloads.c.id,
        or_(leaves, and_(_works_together, sibling.c.status.in_(_STAYING))),
    )
    together = or_(_works_together, workloads.c.gang, workloads.c.single_node, workloads.c.min_tasks.is_not(None))
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
        )
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            tasks.c.current,
            tasks.c.status.in_(_ENDS),
            or_(workloads.c.kind == Kind.DEPLOYMENT, and_(tasks.c.requeue, tasks.c.status != TaskStatus.SUCCEEDED)),
            not_(and_(tasks.c.requeue, together, still_there.exists())),
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
        )
        .order_by(tasks.c.id)
        .limit(limit)
    )


def _failed(row: AnyRow) -> bool:
    """By its own doing, not because its node was lost or it had to leave."""
    status = TaskStatus(row.status)
    left = row.preempted_by is not None or is_loss(status, (row.reason or {}).get("code"))
    return status is TaskStatus.FAILED and not left


async def succeed(
    connection: AsyncConnection,
    successors: Iterable[Successor],
    *,
    actor: str,
    now: datetime,
    term: int | None,
    renewed: bool = False,
) -> int:
    """Replace tasks by successors (attempt + 1) that wait for a node.

    They are made from the template that the tasks were made from; `renewed`: from the present one.
    """
    wanted = {successor.task_id: successor for successor in successors}
    locked = await lock_workloads(connection, {successor.workload_id for successor in wanted.values()})
    replaced: list[AnyRow] = []
    for part in chunks(sorted(wanted)):
        rows = await connection.execute(
            select(tasks, workloads.c.requested_slots.label("request"), workloads.c.revision.label("newest"))
            .join(workloads, workloads.c.id == tasks.c.workload_id)
            .where(tasks.c.id.in_(part), tasks.c.current)
        )
        for row in rows.all():
            workload = locked[row.workload_id]
            if not workload.stopping and workload.ended_at is None:
                replaced.append(row)
    # Those who work together are tried again together: the failure of one is a failure of all.
    together: dict[UUID, int] = defaultdict(int)
    for row in replaced:
        failures = row.failures + wanted[row.id].failed
        together[row.workload_id] = max(together[row.workload_id], failures)
    new = [
        NewTask(
            new_id(),
            row.workload_id,
            row.task_index,
            row.request if renewed else row.requested_slots,
            row.attempt + 1,
            wanted[row.id].not_before,
            row.failures + wanted[row.id].failed if locked[row.workload_id].array else together[row.workload_id],
            row.newest if renewed else row.revision,
        )
        for row in replaced
    ]
    for part in chunks([row.id for row in replaced]):
        await connection.execute(update(tasks).where(tasks.c.id.in_(part)).values(current=False))
    writes = sets.Writes.on(connection)
    insert_tasks(writes, new, now)
    await writes.make(connection)
    affected = {task.workload_id for task in new}
    # Who put a decision about one of them together before has to look again: it has other tasks now.
    for part in chunks(sorted(affected)):
        await connection.execute(
            update(workloads).where(workloads.c.id.in_(part)).values(version=workloads.c.version + 1)
        )
    await transitions.apply(connection, [], actor=actor, now=now, term=term, also=affected)
    await events.append(
        connection,
        [events.NewEvent("workload", w, locked[w].version + 1, "replaced", None, w) for w in sorted(affected)],
        now,
    )
    return len(new)


async def half_stopped(connection: AsyncConnection) -> list[tuple[UUID, TaskStatus]]:
    """Living tasks of workloads that are on their way out because another task of theirs ended badly."""
    return [(row.id, TaskStatus(row.status)) for row in await connection.execute(_half_stopped())]


@cache
def _half_stopped() -> Select[Any]:
    return (
        select(tasks.c.id, tasks.c.status)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            workloads.c.status == WorkloadStatus.TERMINATING,
            tasks.c.status.in_([s for s in TaskStatus if not is_end(s) and s is not TaskStatus.TERMINATING]),
        )
        .order_by(tasks.c.id)
    )


async def left_behind(connection: AsyncConnection) -> list[tuple[UUID, TaskStatus]]:
    """Tasks on nodes of sessions that work together, of which another task is to come again."""
    # A question of its own, since the answer is almost always that there are none.
    short = list((await connection.execute(_to_come_again())).scalars())
    if not short:
        return []
    return [(row.id, TaskStatus(row.status)) for row in await connection.execute(_left_behind(), {"ids": short})]


@cache
def _to_come_again() -> Select[Any]:
    ended = tasks.c.status.in_([TaskStatus.FAILED, TaskStatus.LOST])
    return select(tasks.c.workload_id).where(tasks.c.current, tasks.c.requeue, ended).distinct()


@cache
def _left_behind() -> Select[Any]:
    return (
        select(tasks.c.id, tasks.c.status)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(
            among(workloads.c.id),
            _works_together,
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
            tasks.c.status.in_(_STAYING),
        )
        .order_by(tasks.c.id)
    )
