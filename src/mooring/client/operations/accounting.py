"""Operations of accounting: what was used, what is left of ended work, what would start now, and what is ahead."""

from __future__ import annotations

from datetime import date

from mooring.client.operation import Operation, given
from mooring.model.accounting import By
from mooring.wire.accounting import Room, TaskUseList, UsageReport, UseOrder, WorkloadRecordList
from mooring.wire.timeline import TimelineView


def usage(
    by: By = By.PROJECT, *, since: date | None = None, until: date | None = None, pool: str | None = None
) -> Operation[UsageReport]:
    """What was used on these days, in slot hours."""
    return Operation("GET", "/api/usage", UsageReport, query=given(by=by, since=since, until=until, pool=pool))


def workload_records(
    *, since: date | None = None, until: date | None = None, pool: str | None = None, limit: int | None = None
) -> Operation[WorkloadRecordList]:
    """What is left of workloads that ended on these days, the last first."""
    query = given(since=since, until=until, pool=pool, limit=limit)
    return Operation("GET", "/api/usage/workloads", WorkloadRecordList, query=query)


def task_use(
    *,
    pool: str | None = None,
    user: str | None = None,
    name: str | None = None,
    sort: UseOrder = "cpu",
    limit: int | None = None,
) -> Operation[TaskUseList]:
    """What the tasks that run use at this moment, those that use most first."""
    query = given(pool=pool, user=user, name=name, sort=sort, limit=limit)
    return Operation("GET", "/api/usage/tasks", TaskUseList, query=query)


def timeline(
    pool: str | None = None, *, hours: int | None = None, steps: int | None = None, nodes: bool = False
) -> Operation[TimelineView]:
    """What runs, is booked, planned and free in the time ahead."""
    query = given(pool=pool, hours=hours, steps=steps, nodes=nodes or None)
    return Operation("GET", "/api/timeline", TimelineView, query=query)


def free(pool: str | None = None) -> Operation[Room]:
    """The largest requests that would start now."""
    return Operation("GET", "/api/free", Room, query=given(pool=pool))
