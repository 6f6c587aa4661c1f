"""Operations on accounting: usage, records of ended workloads, free capacity, the timeline."""

from __future__ import annotations

from datetime import date

from mooring.client.operations.operation import Operation, given
from mooring.model.tenancy.accounting import By
from mooring.wire.cluster.timeline import TimelineView
from mooring.wire.cluster.what_if import WhatIfAnswer, WhatIfRequest
from mooring.wire.tenancy.accounting import (
    FreeCapacity,
    TaskUseList,
    UsageReport,
    UseOrder,
    WorkloadRecordList,
)


def usage(
    by: By = By.PROJECT, *, since: date | None = None, until: date | None = None, pool: str | None = None
) -> Operation[UsageReport]:
    """The usage of these days, in slot hours."""
    return Operation("GET", "/api/usage", UsageReport, query=given(by=by, since=since, until=until, pool=pool))


def workload_records(
    *, since: date | None = None, until: date | None = None, pool: str | None = None, limit: int | None = None
) -> Operation[WorkloadRecordList]:
    """The records of workloads that ended on these days, newest first."""
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
    """The measured use of running tasks, highest first."""
    query = given(pool=pool, user=user, name=name, sort=sort, limit=limit)
    return Operation("GET", "/api/usage/tasks", TaskUseList, query=query)


def timeline(
    pool: str | None = None, *, hours: int | None = None, steps: int | None = None, nodes: bool = False
) -> Operation[TimelineView]:
    """The running, booked, planned and free amounts in the time ahead."""
    query = given(pool=pool, hours=hours, steps=steps, nodes=nodes or None)
    return Operation("GET", "/api/timeline", TimelineView, query=query)


_ANSWER_SECONDS = 600.0
"""The answer to a what-if question takes seconds, and more on a busy server."""


def what_if(request: WhatIfRequest) -> Operation[WhatIfAnswer]:
    """Simulate hypothetical changes: when pending work would start with and without them."""
    return Operation("POST", "/api/what-if", WhatIfAnswer, body=request, holds_seconds=_ANSWER_SECONDS)


def free(pool: str | None = None) -> Operation[FreeCapacity]:
    """The largest requests that would start now."""
    return Operation("GET", "/api/free", FreeCapacity, query=given(pool=pool))
