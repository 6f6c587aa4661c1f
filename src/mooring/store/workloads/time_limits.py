"""Changes to the time limit of a workload, including that of its running tasks."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.durations import format_duration
from mooring.model.lifecycle import TaskStatus
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import LoadedWorkload
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.tables import tasks, workloads

_DEADLINES = batch_sql.Statement(
    "UPDATE tasks SET deadline_at = i.deadline_at, version = tasks.version + 1 FROM {rows} i WHERE tasks.id = i.id",
    {"id": "uuid", "deadline_at": "timestamptz"},
)


async def change(
    connection: AsyncConnection, workload: LoadedWorkload, seconds: int, *, actor: str, now: datetime
) -> None:
    """Set the time limit of a workload whose row is locked; deadlines of running tasks are counted from their start."""
    own = tasks.c
    found = await connection.execute(
        select(own.id, own.started_at, own.version, own.node_id).where(
            own.workload_id == workload.id, own.status == TaskStatus.RUNNING, own.started_at.is_not(None)
        )
    )
    running = found.all()
    await connection.execute(
        update(workloads)
        .where(workloads.c.id == workload.id)
        .values(time_limit_seconds=seconds, updated_at=now, version=workload.version + 1)
    )
    log = ChangeLog(actor, now)
    limit = f"Time limit set to {format_duration(seconds)}"
    log.add_status("workload", workload.id, workload.id, workload.status, workload.status, limit)
    log.add_event(events.NewEvent("workload", workload.id, workload.version + 1, "extended", None, workload.id))
    for task in running:
        log.add_event(events.NewEvent("task", task.id, task.version + 1, "extended", task.node_id, workload.id))
    writes = batch_sql.Writes.on(connection)
    if running:
        writes.add(_DEADLINES, [(t.id, t.started_at + timedelta(seconds=seconds)) for t in running])
    log.write(writes)
    await writes.execute(connection)
