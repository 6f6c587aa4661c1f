"""Expiry: tasks past their deadline, and workloads pending for too long or for a dependency that cannot be met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.durations import format_duration
from mooring.model.lifecycle import TaskStatus, WorkloadStatus, is_end
from mooring.model.reasons import Reason
from mooring.model.workloads.dependencies import Condition, OnDependencyFailure
from mooring.store.commit import transitions
from mooring.store.commit.exit_policy import time_limit_reached
from mooring.store.commit.locked_workloads import load
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.commit.workload_status import Ends
from mooring.store.core.batch_sql import by_other_index
from mooring.store.tables import dependencies, tasks, workloads

_HAS_NO_NODE = frozenset({TaskStatus.PENDING, TaskStatus.RESERVED})
_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class OverdueTasks:
    """Changes that are due now, and the time of the next check; None if nothing is scheduled."""

    changes: list[Change]
    next_at: datetime | None


_WITH_DEADLINE = (
    select(tasks.c.id, tasks.c.deadline_at, workloads.c.time_limit_seconds)
    .join(workloads, workloads.c.id == tasks.c.workload_id)
    .where(
        tasks.c.deadline_at.is_not(None),
        tasks.c.ended_at.is_(None),
        by_other_index(tasks.c.status) == TaskStatus.RUNNING,
    )
    .order_by(tasks.c.deadline_at)
    .limit(_LIMIT)
)


async def overdue(connection: AsyncConnection, now: datetime) -> OverdueTasks:
    """Return the changes that end running tasks whose time limit is over."""
    changes: list[Change] = []
    for row in await connection.execute(_WITH_DEADLINE):
        if row.deadline_at > now:
            return OverdueTasks(changes, row.deadline_at)
        changes.append(Change(row.id, TaskStatus.TERMINATING, time_limit_reached(row.time_limit_seconds)))
    return OverdueTasks(changes, None)


async def expired(
    connection: AsyncConnection, timeouts: Mapping[UUID, int], now: datetime
) -> tuple[Ends, datetime | None]:
    """Return never placed workloads pending for longer than their pool's timeout, and the time the next one expires."""
    ends: dict[UUID, tuple[WorkloadStatus, Reason]] = {}
    coming: list[datetime] = []
    for pool_id, seconds in timeouts.items():
        timeout = timedelta(seconds=seconds)
        reason = Reason("pending-timeout", f"It was not placed within {format_duration(seconds)}", "limits", "never")
        waits = and_(
            workloads.c.pool_id == pool_id,
            workloads.c.status == WorkloadStatus.PENDING,
            workloads.c.placed_before.is_(False),
            # A timeslot limits the pending time of its workloads itself.
            workloads.c.timeslot_id.is_(None),
            workloads.c.stopping.is_(False),
        )
        # The timeout of a workload with a later start counts from that start.
        later = workloads.c.starts_at > workloads.c.created_at
        since = case((later, workloads.c.starts_at), else_=workloads.c.created_at)
        rows = await connection.execute(select(workloads.c.id).where(waits, since <= now - timeout).limit(_LIMIT))
        ends |= {row.id: (WorkloadStatus.EXPIRED, reason) for row in rows}
        first = select(func.min(since)).where(waits, since > now - timeout)
        if (oldest := (await connection.execute(first)).scalar()) is not None:
            coming.append(oldest + timeout)
    return ends, min(coming, default=None)


async def with_failed_dependency(connection: AsyncConnection) -> Ends:
    """Return the workloads to cancel because a dependency can no longer be met."""
    ends: dict[UUID, tuple[WorkloadStatus, Reason]] = {}
    for row in await connection.execute(_with_failed_dependency()):
        wanted = "succeed" if row.condition == Condition.AFTER_OK else "fail"
        message = f"It was to run if {row.name!r} would {wanted}; that one is {row.status.lower()}"
        reason = Reason("dependency-failed", message, "dependencies", "never")
        ends.setdefault(row.id, (WorkloadStatus.CANCELLED, reason))
    return ends


@cache
def _with_failed_dependency() -> Select[Any]:
    other = workloads.alias()
    succeeded = other.c.status == WorkloadStatus.SUCCEEDED
    broken = or_(
        and_(dependencies.c.condition == Condition.AFTER_OK, ~succeeded),
        and_(dependencies.c.condition == Condition.AFTER_FAIL, succeeded),
    )
    return (
        select(workloads.c.id, other.c.name, other.c.status, dependencies.c.condition)
        .join(dependencies, dependencies.c.workload_id == workloads.c.id)
        .join(other, other.c.id == dependencies.c.depends_on)
        .where(
            workloads.c.ended_at.is_(None),
            workloads.c.stopping.is_(False),
            workloads.c.on_dependency_failure == OnDependencyFailure.CANCEL,
            other.c.ended_at.is_not(None),
            broken,
        )
        .order_by(workloads.c.id, other.c.id)
        .limit(_LIMIT)
    )


async def end_waiting(
    connection: AsyncConnection, ends: Ends, *, actor: str, now: datetime, term: int | None
) -> Applied:
    """End these workloads as a whole, except those that have since got a node, ended or begun to stop."""
    loaded = await load(connection, workload_ids=ends, whole=True)
    placed = {task.workload_id for task in loaded.tasks.values() if not _has_no_node(task.status)}
    over = {id for id, w in loaded.workloads.items() if w.stopping or w.ended_at is not None}
    left = {workload_id: how for workload_id, how in ends.items() if workload_id not in placed | over}
    changes = [
        Change(task.id, TaskStatus.CANCELLED, left[task.workload_id][1])
        for task in loaded.tasks.values()
        if task.workload_id in left and not is_end(task.status)
    ]
    return await transitions.apply(connection, changes, actor=actor, now=now, term=term, loaded=loaded, ended=left)


def _has_no_node(status: TaskStatus) -> bool:
    return status in _HAS_NO_NODE or is_end(status)
