"""Accounting: what was used, the records of ended work, and what would start now."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.access import Served, User
from mooring.api.errors import problems
from mooring.model.access import sight
from mooring.model.accounting import By, hours_unit, slot_hours
from mooring.model.errors import InvalidInput
from mooring.model.slots import format_amounts
from mooring.store.views import usage as views
from mooring.store.views.usage import RecordRow, UsageRow
from mooring.wire.accounting import MAX_RECORDS, Room, UsageLine, UsageReport, WorkloadRecord, WorkloadRecordList
from mooring.wire.fields import Name

router = APIRouter(prefix="/api", tags=["accounting"], responses=problems(401, 422, 503))

_DEFAULT_DAYS = 30
Since = Annotated[date | None, Query(description="The first day, in UTC; 30 days with today if not given")]
Until = Annotated[date | None, Query(description="The last day, in UTC; today if not given")]


@router.get("/usage", operation_id="get_usage")
async def get_usage(
    services: Served,
    principal: User,
    by: By = By.PROJECT,
    since: Since = None,
    until: Until = None,
    pool: Name | None = None,
) -> UsageReport:
    """What was used, in slot hours; of today as far as it was counted some minutes ago."""
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
    """What is left of workloads that ended in these days, the last first; it outlives the workloads themselves."""
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


@router.get("/free", operation_id="get_free", responses=problems(404))
async def get_free(services: Served, principal: User, pool: Name | None = None) -> Room:
    """The largest requests that would start now, pool by pool, and what the quotas of whoever asks leave."""
    services.rates.question(principal)
    return await services.questions.free(principal, pool)


def _days(now: datetime, since: date | None, until: date | None) -> tuple[date, date]:
    last = until or now.astimezone(UTC).date()
    first = since or date.fromordinal(max(1, last.toordinal() - _DEFAULT_DAYS + 1))
    if first > last:
        raise InvalidInput(f"since {first} is after until {last}", code="invalid-days")
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
    )


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
