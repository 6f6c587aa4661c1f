"""What is old enough to be forgotten: ended workloads with all that belongs to them, and history. In small batches.

Freed ledger rows go with their tasks, and only behind the last day whose usage is settled: no sum ever changes.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store import usage
from mooring.store.sets import among
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

_MOST_TASKS = 5000
"""Of all workloads that go at once; a single larger one goes alone."""


async def purge_workloads(connection: AsyncConnection, before: datetime, most: int) -> int:
    """Forget workloads that ended before then, with tasks, ledger rows, history and attempts; how many went.

    Those stay that a node is still charged for, and those that living work depends on.
    """
    boundary = await _settled(connection, before)
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
        .where(workloads.c.ended_at < boundary, ~charged.exists(), ~awaited.exists())
        .order_by(workloads.c.ended_at)
        .limit(most)
    )
    gone: list[UUID] = []
    number = 0
    for workload_id, own in found:
        number += own
        if gone and number > _MOST_TASKS:
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


async def purge_replaced_tasks(connection: AsyncConnection, before: datetime, most: int) -> int:
    """Forget earlier attempts of work that lives on, with their ledger rows."""
    boundary = await _settled(connection, before)
    oldest = (
        select(tasks.c.id)
        .where(tasks.c.ended_at < boundary, tasks.c.freed_at < boundary, ~tasks.c.current)
        .join(workloads, workloads.c.id == tasks.c.workload_id)
        .where(workloads.c.ended_at.is_(None))
        .order_by(tasks.c.ended_at)
        .limit(most)
    )
    gone = list((await connection.execute(oldest)).scalars())
    if gone:
        await _forget_tasks(connection, among(tasks.c.id, gone))
    return len(gone)


async def purge_history(connection: AsyncConnection, before: datetime, most: int) -> int:
    """Forget changes of statuses and attempts, of what lives on too."""
    first = select(status_history.c.id, status_history.c.at).order_by(status_history.c.id).limit(most).subquery()
    told = status_history.c.id.in_(select(first.c.id).where(first.c.at < before))
    old = (attempts.c.id < _first_id(before), attempts.c.last_at < before)
    oldest = select(attempts.c.id).where(*old).order_by(attempts.c.id).limit(most).correlate(None)
    gone = (await connection.execute(delete(status_history).where(told))).rowcount
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
    """Ids begin with the milliseconds of their making, so that the oldest are found without an index of their own."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)
