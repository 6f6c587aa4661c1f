"""Tasks that ended before they should and start again: how many are in a crash loop, and how the worst ended last."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Select, and_, bindparam, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.workloads.lifetime.health import LOOPS_AFTER, RAN_WELL, Trouble
from mooring.store.core.batch_sql import among
from mooring.store.core.queries import Query
from mooring.store.tables import tasks


async def troubles(connection: AsyncConnection, ids: Collection[UUID], now: datetime) -> dict[UUID, Trouble]:
    """Return the trouble of each of these workloads that has any. A task that has been ready for long has none."""
    rows = await _TROUBLES.rows(connection, ids=ids, since=now - RAN_WELL)
    return {
        row.workload_id: Trouble(
            looping=row.looping,
            restarts=row.restarts,
            exit_code=row.last_exit_code,
            code=row.last_reason["code"],
            reason=row.last_reason["message"],
            retry_at=next_start(row.status, row.not_before, row.retry_at),
        )
        for row in rows
    }


def next_start(status: str, not_before: datetime | None, retry_at: datetime | None) -> datetime | None:
    """Return the next start of a task that backs off: of a pending one by the server, of a running one in place."""
    if status == TaskStatus.PENDING:
        return not_before
    return retry_at if status == TaskStatus.RUNNING else None


def _troubles() -> Select[Any]:
    own = tasks.c
    crashes = own.earlier_crashes + own.crashes
    is_looping = case((crashes >= LOOPS_AFTER, 1), else_=0)
    found = (
        select(
            own.workload_id,
            own.status,
            own.last_exit_code,
            own.last_reason,
            own.not_before,
            own.retry_at,
            func.sum(is_looping, type_=Integer()).over(partition_by=own.workload_id).label("looping"),
            func.sum(own.earlier_crashes + own.restarts, type_=Integer())
            .over(partition_by=own.workload_id)
            .label("restarts"),
            func.row_number()
            .over(partition_by=own.workload_id, order_by=(crashes.desc(), own.task_index))
            .label("rank"),
        )
        .where(
            among(own.workload_id),
            own.current,
            own.last_reason.is_not(None),
            or_(own.ready_at.is_(None), own.ready_at > bindparam("since")),
            # A task that ended for good no longer counts: its workload has failed or continues without it.
            or_(own.ended_at.is_(None), and_(own.status != TaskStatus.SUCCEEDED, own.requeue)),
        )
        .subquery()
    )
    return select(found).where(found.c.rank == 1)


_TROUBLES = Query(_troubles())
