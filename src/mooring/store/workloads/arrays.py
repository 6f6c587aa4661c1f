"""Deferred tasks of arrays: an index of an array has no row before it is placed or cancelled.

All indexes below `workloads.next_index` have a row, so that an array of any size is submitted as one row. From there on
only indexes that were cancelled have one. Deferred tasks are pending as long as the array may start them, and cancelled
once it has ended or is stopping.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Set
from functools import lru_cache
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Task
from mooring.store.core import batch_sql
from mooring.store.core.ids import array_task_id
from mooring.store.tables import tasks, workloads

_MAX_CACHED_ARRAYS = 256

DEFERRED = """
    CASE WHEN w.array IS NULL OR w.next_index = w.replicas THEN 0 ELSE w.replicas - w.next_index - (
        SELECT count(*) FROM tasks r WHERE r.workload_id = w.id AND r.task_index >= w.next_index AND r.attempt = 1
    ) END
"""
"""SQL for the number of deferred tasks of the workload `w`."""

_AHEAD = (
    select(tasks.c.workload_id, tasks.c.task_index)
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .where(
        batch_sql.among(tasks.c.workload_id),
        workloads.c.array.is_not(None),
        tasks.c.task_index >= workloads.c.next_index,
        tasks.c.attempt == 1,
    )
)


def deferred_count() -> ColumnElement[int]:
    own, row = workloads.c, tasks.alias("ahead").c
    ahead = (
        select(func.count())
        .where(row.workload_id == own.id, row.task_index >= own.next_index, row.attempt == 1)
        .correlate(workloads)
        .scalar_subquery()
    )
    none = own.array.is_(None) | (own.next_index == own.replicas)
    return case((none, 0), else_=own.replicas - own.next_index - ahead)


def has_deferred() -> ColumnElement[bool]:
    """Return the condition that a workload has deferred tasks that are pending."""
    own = workloads.c
    return and_(own.array.is_not(None), own.ended_at.is_(None), own.stopping.is_(False), deferred_count() > 0)


def deferred_status(*, ended: bool, stopping: bool) -> TaskStatus:
    return TaskStatus.CANCELLED if ended or stopping else TaskStatus.PENDING


async def rows_ahead(connection: AsyncConnection, ids: Collection[UUID]) -> dict[UUID, set[int]]:
    """Return the indexes from `next_index` on that have a row, of these arrays; arrays without one are left out."""
    found: dict[UUID, set[int]] = defaultdict(set)
    if ids:
        for workload_id, index in await connection.execute(_AHEAD, {"ids": ids}):
            found[workload_id].add(index)
    return found


def deferred_tasks(workload_id: UUID, created: int, count: int, ahead: Set[int] = frozenset()) -> tuple[Task, ...]:
    """Return the tasks from index `created` on except those `ahead`, as they will be once they have rows."""
    found = _all_tasks(workload_id, count)[created:] if created else _all_tasks(workload_id, count)
    return tuple(task for task in found if task.index not in ahead) if ahead else found


@lru_cache(maxsize=_MAX_CACHED_ARRAYS)
def _all_tasks(workload_id: UUID, count: int) -> tuple[Task, ...]:
    return tuple(Task(array_task_id(workload_id, index), index) for index in range(count))
