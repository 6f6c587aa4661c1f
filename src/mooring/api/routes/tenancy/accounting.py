"""Accounting: usage, the records of ended work, and free capacity."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query

from mooring.api.agents.measured_usage import Measured
from mooring.api.auth.request_access import Served, User
from mooring.api.lookup.workloads import find_workload
from mooring.api.middleware.errors import problems
from mooring.model.errors import InvalidInput
from mooring.model.resources.slots import format_amounts
from mooring.model.tenancy.access import sight
from mooring.model.tenancy.accounting import By, hours_unit, slot_hours
from mooring.store.accounting import measured_usage
from mooring.store.views import measured as measured_views
from mooring.store.views import usage as views
from mooring.store.views.usage import RecordRow, UsageRow
from mooring.wire.fields import Name
from mooring.wire.tenancy.accounting import (
    MAX_RECORDS,
    FreeCapacity,
    TaskUse,
    TaskUseList,
    UsageLine,
    UsagePoint,
    UsageReport,
    UseOrder,
    WorkloadRecord,
    WorkloadRecordList,
    WorkloadUsage,
)

router = APIRouter(prefix="/api", tags=["accounting"], responses=problems(401, 422, 503))

_DEFAULT_DAYS = 30
_LATELY = timedelta(minutes=5)
Since = Annotated[date | None, Query(description="First day, in UTC (default: the last 30 days)")]
Until = Annotated[date | None, Query(description="Last day, in UTC (default: today)")]


@router.get("/usage", operation_id="get_usage")
async def get_usage(
    services: Served,
    principal: User,
    by: By = By.PROJECT,
    since: Since = None,
    until: Until = None,
    pool: Name | None = None,
) -> UsageReport:
    """Get usage in slot hours. Today's is a few minutes old."""
    first, last = _days(services.now(), since, until)
    async with services.database.read() as connection:
        rows = await views.usage(connection, by, _start(first), _end(last), sight=sight(principal), pool=pool)
    return UsageReport(by=by, since=first, until=last, usage=[_line(row) for row in rows])


@router.get("/usage/workloads", operation_id="list_workload_records")
async def list_workload_records(
    services: Served,
    principal: User,
    since: Since = None,
    until: Until = None,
    pool: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 100,
) -> WorkloadRecordList:
    """List records of workloads that ended in a period, newest first. Records outlive their workloads."""
    first, last = _days(services.now(), since, until)
    async with services.database.read() as connection:
        rows = await views.records(
            connection,
            _start(first),
            _end(last),
            sight=sight(principal),
            limit=limit,
            pool=pool,
        )
    return WorkloadRecordList(workloads=[_record(row) for row in rows])


@router.get("/usage/workloads/{ref}", operation_id="get_workload_usage", responses=problems(404))
async def get_workload_usage(
    services: Served,
    principal: User,
    ref: str,
    hours: Annotated[int, Query(ge=1, le=24 * 7, description="Period until now")] = 24,
) -> WorkloadUsage:
    """Get the measured CPU, memory, disk and network use of a workload by minute."""
    services.rates.query(principal)
    row = await find_workload(services, principal, ref)
    async with services.database.read() as connection:
        found = await measured_usage.series(connection, row.id, services.now() - timedelta(hours=hours))
    points: dict[datetime, dict[str, int]] = {}
    for at, slot, amount in found:
        # Agents measure once a minute, each at its own second.
        minute = points.setdefault(at.replace(second=0, microsecond=0), {})
        minute[slot] = minute.get(slot, 0) + amount
    return WorkloadUsage(points=[UsagePoint(at=at, amounts=amounts) for at, amounts in points.items()])


@router.get("/usage/tasks", operation_id="list_task_use")
async def list_task_use(
    services: Served,
    principal: User,
    pool: Name | None = None,
    user: Name | None = None,
    name: Name | None = None,
    node: Name | None = None,
    sort: UseOrder = "cpu",
    limit: Annotated[int, Query(ge=1, le=MAX_RECORDS)] = 100,
) -> TaskUseList:
    """Get the current consumption of running tasks as measured by their agents."""
    services.rates.query(principal)
    selection = measured_views.Running(sight(principal), pool=pool, user=user, name=name, node=node)
    async with services.database.read() as connection:
        rows = await measured_views.running(connection, selection)
        known = services.measured.newest
        at = services.now()
        # Those of other servers' agents.
        elsewhere = [row.id for row in rows if row.id not in known]
        stored = await measured_usage.newest(connection, elsewhere, at - _LATELY) if elsewhere else {}
    measured = {row.id: known.get(row.id) or stored.get(row.id) for row in rows}
    of_row = _USE_ORDERS[sort]
    # There can be very many: build only the views that are shown.
    shown = heapq.nsmallest(limit, rows, key=lambda row: of_row(row, _amounts(measured[row.id])))
    return TaskUseList(tasks=[_task_use(row, measured[row.id], at) for row in shown], total=len(rows))


@router.get("/free", operation_id="get_free", responses=problems(404))
async def get_free(services: Served, principal: User, pool: Name | None = None) -> FreeCapacity:
    """Get the largest requests that would start now, by pool, within the caller's quotas."""
    services.rates.query(principal)
    return await services.queries.free(principal, pool)


def _days(now: datetime, since: date | None, until: date | None) -> tuple[date, date]:
    last = until or now.astimezone(UTC).date()
    first = since or date.fromordinal(max(1, last.toordinal() - _DEFAULT_DAYS + 1))
    if first > last:
        raise InvalidInput(f"since {first} is later than until {last}", code="invalid-days")
    return first, last


def _start(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _end(day: date) -> datetime:
    return datetime.combine(day, time.max, UTC)


def _line(row: UsageRow) -> UsageLine:
    return UsageLine(
        name=row.name,
        slot=row.slot,
        amount_seconds=row.amount_seconds,
        hours=slot_hours(row.slot, row.amount_seconds),
        unit=hours_unit(row.slot),
        measured_hours=None if row.measured_seconds is None else slot_hours(row.slot, row.measured_seconds),
    )


def _task_use(row: measured_views.RunningRow, found: Measured | measured_usage.Newest | None, at: datetime) -> TaskUse:
    used = _amounts(found)
    return TaskUse(
        task_id=row.id,
        workload_id=row.workload_id,
        workload=row.workload,
        index=row.task_index,
        user=row.user,
        project=row.project,
        pool=row.pool,
        node=row.node_name,
        started_at=row.started_at,
        deadline_at=row.deadline_at,
        devices={slot: list(shares) for slot, shares in (row.devices or {}).items()},
        cpu_millicores=used.get("cpu"),
        cpu_asked_millicores=row.requested_slots.get("cpu"),
        memory_bytes=used.get("memory"),
        memory_asked_bytes=row.requested_slots.get("memory"),
        read_per_second=used.get("read"),
        written_per_second=used.get("written"),
        received_per_second=used.get("received"),
        sent_per_second=used.get("sent"),
        measured_at=None if found is None else found.measured_at,
        age_seconds=None if found is None else max(0.0, (at - found.measured_at).total_seconds()),
    )


def _amounts(found: Measured | measured_usage.Newest | None) -> Mapping[str, int]:
    return {} if found is None else found.amounts


def _by_name(row: measured_views.RunningRow) -> tuple[str, int]:
    return row.workload, row.task_index


_FLOWS = ("read", "written", "received", "sent")
_USE_ORDERS: Mapping[UseOrder, Callable[[measured_views.RunningRow, Mapping[str, int]], Any]] = {
    "cpu": lambda row, used: (-used.get("cpu", 0), _by_name(row)),
    "memory": lambda row, used: (-used.get("memory", 0), _by_name(row)),
    "io": lambda row, used: (-sum(used.get(flow, 0) for flow in _FLOWS), _by_name(row)),
    "name": lambda row, _used: _by_name(row),
}


def _record(row: RecordRow) -> WorkloadRecord:
    return WorkloadRecord(
        id=row.workload_id,
        name=row.name,
        kind=row.kind,
        type=row.type,
        domain=row.domain,
        project=row.project,
        user=row.username,
        access_key=row.access_key,
        pool=row.pool,
        priority=row.priority,
        tasks=row.tasks,
        attempts=row.attempts,
        requested=format_amounts(row.requested_slots),
        peak=format_amounts(row.peak_slots),
        nodes=list(row.nodes),
        status=row.status,
        reason=None if row.reason is None else dict(row.reason),
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        wait_seconds=row.wait_seconds,
        run_seconds=row.run_seconds,
    )
