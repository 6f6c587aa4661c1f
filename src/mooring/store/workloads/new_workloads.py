"""Submission writes: workloads, their tasks, ledger rows, history and events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.calendar.timeslots import Timeslot
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.containers import TaskTemplate
from mooring.model.workloads.lifetime.rollouts import Rollout
from mooring.model.workloads.schedule import DEFAULT_SCHEDULE, ScheduleOptions
from mooring.model.workloads.workload import (
    Kind,
    PlacementOptions,
)
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.new_tasks import NewTask, insert_tasks
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.constraint_columns import encode_constraints
from mooring.store.core.types import as_uuid
from mooring.store.tables import dependencies as dependency_rows
from mooring.store.tables import workload_volumes, workloads
from mooring.store.workloads import (
    idempotency,
    option_columns,
    templates,
)
from mooring.store.workloads.idempotency import Answered, Key
from mooring.store.workloads.mounts import Mounted
from mooring.store.workloads.option_columns import encode_options

# CROSS JOIN makes SQLite look up each name; it would otherwise read all workloads of a user who submits many names.
_NAMES = batch_sql.Statement(
    """
    SELECT i.ordinal, w.id FROM {rows} i CROSS JOIN workloads w
    WHERE w.user_id = i.user_id AND w.name = i.name AND w.ended_at IS NULL
    """,
    {"user_id": "uuid", "name": "text"},
)
_MANY_TASKS = 200
"""Rows of more tasks than this are prepared off the event loop."""


@dataclass(frozen=True, slots=True)
class NewWorkload(PlacementOptions):
    """Validated submission: everything that the transaction writes, decided before it begins."""

    id: UUID
    name: str
    kind: Kind
    type: str
    principal: Principal
    pool_id: UUID
    replicas: int
    template: TaskTemplate
    labels: Mapping[str, str]
    constraints: Constraints
    task_ids: tuple[UUID, ...]
    """Ids of the tasks written with it: all of them, or none for an array."""
    preemptible: bool = True
    min_available: int | None = None
    schedule: ScheduleOptions = DEFAULT_SCHEDULE
    timeslot: Timeslot | None = None
    """Timeslot of this workload alone, written with it."""
    mounts: tuple[Mounted, ...] = ()
    """Volumes of its project that its tasks mount."""
    rollout: Rollout | None = None
    """Rollout policy of a deployment; None for the default."""


Names = dict[tuple[UUID, str], UUID]
"""Live workloads by user and name."""


async def read_known(
    connection: AsyncConnection, keys: Iterable[Key], new: Sequence[NewWorkload]
) -> tuple[dict[Key, Answered], Names]:
    """Return the responses stored under these idempotency keys, and the live workloads with these users and names."""
    used, names = sorted(set(keys)), [(w.principal.user_id, w.name) for w in new]
    answered, found = await batch_sql.read_each(connection, (idempotency.ANSWERED, used), (_NAMES, names))
    return idempotency.by_key(used, answered), {names[number]: as_uuid(id) for number, id in found}


async def submit(
    connection: AsyncConnection,
    new: Sequence[NewWorkload],
    now: datetime,
    answers: Sequence[tuple[Key, Answered]] = (),
    *,
    last: bool = False,
) -> None:
    """Write workloads with their tasks PENDING, their ledger rows, history and events: a statement per table.

    The tasks of arrays are deferred (see `arrays`). `answers`: stored under their idempotency keys. `last`: see
    `Writes.execute`.
    """
    writes = batch_sql.Writes.on(connection)
    if new:
        large = sum(len(each.task_ids) for each in new) > _MANY_TASKS
        prepare = partial(_submission, writes, new, now)
        await asyncio.to_thread(prepare) if large else prepare()
    idempotency.add(writes, answers, now)
    await writes.execute(connection, last=last)


def _submission(writes: batch_sql.Writes, new: Sequence[NewWorkload], now: datetime) -> None:
    batch_sql.insert(writes, workloads, [row_of(w, now) for w in new])
    batch_sql.insert(
        writes,
        dependency_rows,
        [
            {"workload_id": w.id, "depends_on": other, "condition": condition}
            for w in new
            for other, condition in w.schedule.dependencies
        ],
    )
    mounted = [{"workload_id": w.id, "volume_id": mount.volume_id} for w in new for mount in w.mounts]
    batch_sql.insert(writes, workload_volumes, mounted)
    wanted = [
        NewTask(task_id, w.id, index, request)
        for w in new
        for request in (requests_of(w.template),)
        for index, task_id in enumerate(w.task_ids)
    ]
    insert_tasks(writes, wanted, now)
    log = ChangeLog("", now)
    for w in new:
        log.actor = str(w.principal.user_id)
        created = f"{w.kind.value.capitalize()} created by user"
        log.add_status("workload", w.id, w.id, "none", WorkloadStatus.PENDING, created)
        log.add_event(events.NewEvent("workload", w.id, 1, WorkloadStatus.PENDING, None, w.id))
    log.write(writes)


def row_of(w: NewWorkload, now: datetime) -> dict[str, Any]:
    return {
        "id": w.id,
        "name": w.name,
        "kind": w.kind,
        "type": w.type,
        "domain_id": w.principal.domain_id,
        "project_id": w.principal.project_id,
        "user_id": w.principal.user_id,
        "access_key": w.principal.access_key,
        "pool_id": w.pool_id,
        "status": WorkloadStatus.PENDING,
        "replicas": w.replicas,
        "runtime": w.template.runtime,
        "architecture": w.template.architecture,
        **encode_options(w),
        "preemptible": w.preemptible,
        "min_available": w.min_available,
        "template": templates.encode(w.template),
        "requested_slots": requests_of(w.template),
        "labels": dict(w.labels),
        "constraints": encode_constraints(w.constraints),
        "next_index": w.replicas if w.schedule.array is None else len(w.task_ids),
        "rollout": None if w.rollout is None else option_columns.encode_rollout(w.rollout),
        **_schedule_row(w.schedule),
        "upload_id": w.template.upload,
        "created_at": now,
        "updated_at": now,
    }


def _schedule_row(schedule: ScheduleOptions) -> dict[str, Any]:
    notice, array = schedule.notice, schedule.array
    return {
        "private": schedule.private,
        "starts_at": schedule.starts_at,
        "time_limit_seconds": schedule.time_limit_seconds,
        "idle_timeout_seconds": schedule.idle_timeout_seconds,
        "warning_signal": None if notice is None else notice.signal,
        "warning_seconds": None if notice is None else notice.seconds,
        "array": None if array is None else {"first": array.first, "step": array.step},
        "parallel": None if array is None else array.parallel,
        "max_retries": schedule.max_retries,
        "retry_on": None if schedule.retry_on is None else list(schedule.retry_on),
        "on_dependency_failure": schedule.on_dependency_failure,
        "singleton": schedule.singleton,
        "timeslot_id": schedule.booking,
    }
