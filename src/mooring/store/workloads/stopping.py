"""Stopping a workload on request, and the status changes of tasks that must end or leave their node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus, is_end
from mooring.model.reasons import Reason
from mooring.store.commit import transitions
from mooring.store.commit.locked_workloads import LoadedWorkload, lock_workloads
from mooring.store.commit.new_tasks import NewTask, insert_tasks
from mooring.store.commit.replacements import Replacement, replace_tasks
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.control import events
from mooring.store.core.batch_sql import Writes
from mooring.store.core.chunks import chunks
from mooring.store.core.ids import array_task_id
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, workloads
from mooring.store.workloads.arrays import rows_ahead


async def stop(
    connection: AsyncConnection,
    workload_id: UUID,
    *,
    actor: str,
    now: datetime,
    remove: bool,
    reason: Reason,
    force: bool = False,
) -> Applied:
    """Stop a workload: tasks that are pending or only reserved end at once, the others when their node reports it.

    `force` marks the others lost at once; they count on their node until it reports that nothing of them is left.
    """
    locked = await lock_workloads(connection, [workload_id])
    workload = locked[workload_id]
    values: dict[str, Any] = {"stopping": True} if workload.ended_at is None else {}
    if remove and workload.removed_at is None:
        values["removed_at"] = now
    if not values:
        return Applied()
    await connection.execute(update(workloads).where(workloads.c.id == workload_id).values(values))
    rows = await connection.execute(
        select(tasks.c.id, tasks.c.status).where(tasks.c.workload_id == workload_id).order_by(tasks.c.id)
    )
    living = [(row.id, status) for row in rows if not is_end(status := TaskStatus(row.status))]
    changes = [stop_change(task_id, status, reason, force=force) for task_id, status in living]
    return await transitions.apply(connection, changes, actor=actor, now=now, also=[workload_id])


async def cancel_tasks(
    connection: AsyncConnection,
    workload_id: UUID,
    indexes: Sequence[int],
    *,
    actor: str,
    now: datetime,
    reason: Reason,
    force: bool = False,
) -> Applied:
    """Cancel these tasks of an array, which are not retried; the others continue. `force` as for `stop`.

    Tasks that have ended stay as they are, and so do all tasks of an array that has ended or is stopping.
    """
    workload = (await lock_workloads(connection, [workload_id]))[workload_id]
    if not indexes or workload.stopping or workload.ended_at is not None:
        return Applied()
    await _create_deferred(connection, workload, indexes, now)
    found = await _current_tasks(connection, workload_id, indexes)
    ended = [row for row in found if row.requeue and is_end(TaskStatus(row.status))]
    # The next attempt is created to be cancelled: an ended one keeps the status in which it ended.
    retried = [Replacement(row.id, workload_id) for row in ended if row.status != TaskStatus.SUCCEEDED]
    if retried:
        await replace_tasks(connection, retried, actor=actor, now=now, term=None)
        found = await _current_tasks(connection, workload_id, indexes)
    leaving = [row for row in found if row.requeue and row.status == TaskStatus.TERMINATING]
    await _do_not_requeue(connection, workload_id, leaving, reason, now)
    living = [(row.id, status) for row in found if not is_end(status := TaskStatus(row.status))]
    changes = [stop_change(task_id, status, reason, force=force) for task_id, status in living]
    return await transitions.apply(connection, changes, actor=actor, now=now, also=[workload_id])


async def _create_deferred(
    connection: AsyncConnection, workload: LoadedWorkload, indexes: Sequence[int], now: datetime
) -> None:
    """Write the rows of those of these tasks that are deferred. The indexes below them stay deferred."""
    deferred = [index for index in indexes if index >= workload.next_index]
    if not deferred or not workload.deferred:
        return
    ahead = (await rows_ahead(connection, [workload.id])).get(workload.id, set())
    of_workload = workloads.c.id == workload.id
    request = (await connection.execute(select(workloads.c.requested_slots).where(of_workload))).scalar_one()
    new = [
        NewTask(array_task_id(workload.id, index), workload.id, index, request)
        for index in deferred
        if index not in ahead
    ]
    writes = Writes.on(connection)
    # In a thread: an array may have very many tasks.
    await asyncio.to_thread(insert_tasks, writes, new, now)
    await writes.execute(connection)


async def _current_tasks(connection: AsyncConnection, workload_id: UUID, indexes: Sequence[int]) -> list[AnyRow]:
    found: list[AnyRow] = []
    for part in chunks(indexes):
        rows = await connection.execute(
            select(tasks.c.id, tasks.c.status, tasks.c.requeue, tasks.c.version, tasks.c.node_id)
            .where(tasks.c.workload_id == workload_id, tasks.c.current, tasks.c.task_index.in_(part))
            .order_by(tasks.c.task_index)
        )
        found += rows.all()
    return found


async def _do_not_requeue(
    connection: AsyncConnection, workload_id: UUID, leaving: Sequence[AnyRow], reason: Reason, now: datetime
) -> None:
    """Let evicted tasks end for good."""
    for part in chunks([row.id for row in leaving]):
        values = {"requeue": False, "reason": reason.as_dict(), "version": tasks.c.version + 1}
        await connection.execute(update(tasks).where(tasks.c.id.in_(part)).values(values))
    await events.append(
        connection,
        [
            events.NewEvent("task", row.id, row.version + 1, TaskStatus.TERMINATING, row.node_id, workload_id)
            for row in leaving
        ],
        now,
    )


def stop_change(task_id: UUID, status: TaskStatus, reason: Reason, *, force: bool = False) -> Change:
    """Return the change that ends a live task from its current status; `force` does not wait for its node."""
    if status in (TaskStatus.PENDING, TaskStatus.RESERVED):
        return Change(task_id, TaskStatus.CANCELLED, reason)
    return (
        Change(task_id, TaskStatus.LOST, reason, freed=False)
        if force
        else Change(task_id, TaskStatus.TERMINATING, reason)
    )


def evict(task_id: UUID, status: TaskStatus, reason: Reason, *, requeue: bool = False) -> Change:
    """Return the change for a task that must leave its node; one that is only reserved has nothing to end."""
    if status is TaskStatus.RESERVED:
        return Change(task_id, TaskStatus.PENDING, reason)
    return Change(task_id, TaskStatus.TERMINATING, reason, requeue=requeue)


def mark_lost(task_id: UUID, status: TaskStatus, reason: Reason, *, freed: bool) -> Change:
    """Return the change for a task whose node is lost; one that is only reserved is requeued."""
    if status is TaskStatus.RESERVED:
        return Change(task_id, TaskStatus.PENDING, reason)
    return Change(task_id, TaskStatus.LOST, reason, freed=freed)
