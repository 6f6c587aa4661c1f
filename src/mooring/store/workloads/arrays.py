"""Deferred tasks of arrays: an index of an array has no row before it is placed.

`workloads.next_index` is the first index without a row, so that an array of any size is submitted as one row. Deferred
tasks are pending as long as the array may start them, and cancelled once it has ended or is stopping.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from sqlalchemy import ColumnElement, and_, case

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.workload import Task
from mooring.store.core.ids import array_task_id
from mooring.store.tables import workloads

_MAX_CACHED_ARRAYS = 256

DEFERRED = "CASE WHEN w.array IS NULL THEN 0 ELSE w.replicas - w.next_index END"
"""SQL for the number of deferred tasks of the workload `w`."""


def deferred_count() -> ColumnElement[int]:
    own = workloads.c
    return case((own.array.is_(None), 0), else_=own.replicas - own.next_index)


def has_deferred() -> ColumnElement[bool]:
    """Return the condition that a workload has deferred tasks that are pending."""
    own = workloads.c
    return and_(own.array.is_not(None), own.next_index < own.replicas, own.ended_at.is_(None), own.stopping.is_(False))


def deferred_status(*, ended: bool, stopping: bool) -> TaskStatus:
    return TaskStatus.CANCELLED if ended or stopping else TaskStatus.PENDING


def deferred_tasks(workload_id: UUID, created: int, count: int) -> tuple[Task, ...]:
    """Return the tasks from index `created` on, as they will be once they have rows."""
    return _all_tasks(workload_id, count)[created:] if created else _all_tasks(workload_id, count)


@lru_cache(maxsize=_MAX_CACHED_ARRAYS)
def _all_tasks(workload_id: UUID, count: int) -> tuple[Task, ...]:
    return tuple(Task(array_task_id(workload_id, index), index) for index in range(count))
