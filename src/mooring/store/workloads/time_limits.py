"""Changing how long the tasks of a workload may take, while they run too."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.durations import format_duration
from mooring.model.lifecycle import TaskStatus
from mooring.store import events, sets
from mooring.store.history import Journal
from mooring.store.loading import LoadedWorkload
from mooring.store.tables import tasks, workloads

_DEADLINES = sets.Statement(
    "UPDATE tasks SET deadline_at = i.deadline_at, version = tasks.version + 1 FROM {rows} i WHERE tasks.id = i.id",
    {"id": "uuid", "deadline_at": "timestamptz"},
)


async def change(
    connection: AsyncConnection, workload: LoadedWorkload, seconds: int, *, actor: str, now: datetime
) -> None:
    """A new time limit for a workload whose row is locked; each running task ends so long after its start."""
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
    journal = Journal(actor, now)
    limit = f"Time limit set to {format_duration(seconds)}"
    journal.note("workload", workload.id, workload.id, workload.status, workload.status, limit)
    journal.tell(events.NewEvent("workload", workload.id, workload.version + 1, "extended", None, workload.id))
    for task in running:
        journal.tell(events.NewEvent("task", task.id, task.version + 1, "extended", task.node_id, workload.id))
    writes = sets.Writes.on(connection)
    if running:
        writes.add(_DEADLINES, [(t.id, t.started_at + timedelta(seconds=seconds)) for t in running])
    journal.write(writes)
    await writes.make(connection)
