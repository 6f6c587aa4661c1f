"""Deletion of old ended workloads with their dependent rows, and of old history, in small batches.

Freed ledger rows are deleted with their tasks, and only up to the last day whose usage is settled, so that no sum ever
changes.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.accounting import usage
from mooring.store.core.batch_sql import among
from mooring.store.tables import (
    attempts,
    dependencies,
    device_allocations,
    resource_allocations,
    status_history,
    task_usage,
    tasks,
    workload_revisions,
    workloads,
)

_MAX_TASKS = 5000
"""Maximum tasks of the workloads in one batch; a workload with more is deleted alone."""


async def purge_workloads(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete workloads that ended before the given time and return their number.

    Their tasks, ledger rows, history and attempts are deleted with them.
    Workloads that a node is still charged for, and those that live workloads depend on, are retained.
    """
    cutoff = await _settled(connection, before)
    charged = select(tasks.c.id).where(tasks.c.workload_id == workloads.c.id, tasks.c.freed_at.is_(None))
    dependent = workloads.alias()
    awaited = (
        select(dependencies.c.workload_id)
        .join(dependent, dependent.c.id == dependencies.c.workload_id)
        .where(dependencies.c.depends_on == workloads.c.id, dependent.c.ended_at.is_(None))
    )
    number_of_tasks = select(func.count()).where(tasks.c.workload_id == workloads.c.id).scalar_subquery()
    found = await connection.execute(
        select(workloads.c.id, number_of_tasks)
        .where(workloads.c.ended_at < cutoff, ~charged.exists(), ~awaited.exists())
        .order_by(workloads.c.ended_at)
        .limit(limit)
    )
    gone: list[UUID] = []
    number = 0
    for workload_id, own in found:
        number += own
        if gone and number > _MAX_TASKS:
            break
        gone.append(workload_id)
    if gone:
        await _forget_tasks(connection, among(tasks.c.workload_id, gone))
        of_them = [among(column, gone) for column in dependencies.primary_key.columns]
        await connection.execute(delete(dependencies).where(or_(*of_them)))
        for table, column in (
            (attempts, attempts.c.workload_id),
            (status_history, status_history.c.workload_id),
            (workload_revisions, workload_revisions.c.workload_id),
            (workloads, workloads.c.id),
        ):
            await connection.execute(delete(table).where(among(column, gone)))
    return len(gone)


async def purge_replaced_tasks(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete replaced tasks of live workloads, with their ledger rows, and return their number."""
    cutoff = await _settled(connection, before)
    oldest = (
        select(tasks.c.id)
        .where(tasks.c.ended_at < cutoff, tasks.c.freed_at < cutoff, ~tasks.c.current)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(workloads.c.ended_at.is_(None))
        .order_by(tasks.c.ended_at)
        .limit(limit)
    )
    gone = list((await connection.execute(oldest)).scalars())
    if gone:
        await _forget_tasks(connection, among(tasks.c.id, gone))
    return len(gone)


async def purge_history(connection: AsyncConnection, before: datetime, limit: int) -> int:
    """Delete old status changes and attempts, also of live workloads, and return the number of rows."""
    first = select(status_history.c.id, status_history.c.at).order_by(status_history.c.id).limit(limit).subquery()
    outdated = status_history.c.id.in_(select(first.c.id).where(first.c.at < before))
    old = (attempts.c.id < _first_id(before), attempts.c.last_at < before)
    oldest = select(attempts.c.id).where(*old).order_by(attempts.c.id).limit(limit).correlate(None)
    gone = (await connection.execute(delete(status_history).where(outdated))).rowcount
    return gone + (await connection.execute(delete(attempts).where(attempts.c.id.in_(oldest)))).rowcount


async def _forget_tasks(connection: AsyncConnection, condition: ColumnElement[bool]) -> None:
    these = select(tasks.c.id).where(condition)
    for table in (resource_allocations, device_allocations, task_usage):
        await connection.execute(delete(table).where(table.c.task_id.in_(these)))
    await connection.execute(delete(tasks).where(condition))


async def _settled(connection: AsyncConnection, before: datetime) -> datetime:
    settled = await usage.settled_until(connection)
    return min(before, settled or datetime.min.replace(tzinfo=before.tzinfo))


def _first_id(moment: datetime) -> UUID:
    """Return the smallest id of the given moment.

    Ids begin with their creation time in milliseconds, so that the primary key finds the oldest rows.
    """
    return UUID(int=int(moment.timestamp() * 1000) << 80)
