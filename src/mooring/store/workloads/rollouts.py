"""Rollouts of deployments: replacement task by task, scaling up and down, and the stop of retiring tasks.

A task that fails meanwhile is replaced at its own revision: only a step of the rollout moves a task to another one, so
that a bad revision spreads no further than the bounds allow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import OCCUPYING, TaskStatus, is_end
from mooring.model.reasons import Reason
from mooring.model.resources.slots import Amounts
from mooring.model.workloads.lifetime.rollouts import (
    Member,
    Phase,
    Rollout,
    Step,
    progress,
    proven,
    steady_at,
    to_scale,
)
from mooring.store.commit import transitions
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.locked_workloads import LoadedWorkload, lock_workloads
from mooring.store.commit.new_tasks import NewTask, insert_tasks
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.control import events
from mooring.store.core import batch_sql
from mooring.store.core.batch_sql import among
from mooring.store.core.ids import new_id
from mooring.store.tables import tasks, workloads
from mooring.store.workloads import option_columns
from mooring.store.workloads.stopping import stop_change

_ON_A_NODE = OCCUPYING - {TaskStatus.RESERVED, TaskStatus.TERMINATING}
_RETIRING: ColumnElement[bool] = and_(
    tasks.c.retires_at.is_not(None), tasks.c.ended_at.is_(None), tasks.c.status.in_(sorted(_ON_A_NODE))
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Deployment whose row is locked, with the state needed to create and replace its tasks."""

    workload: LoadedWorkload
    replicas: int
    revision: int
    request: Amounts
    next_index: int
    rollout: Rollout
    lacks: str | None
    """Reason why tasks of it are pending."""

    @property
    def over(self) -> bool:
        return self.workload.stopping or self.workload.ended_at is not None


class Due(NamedTuple):
    workload_ids: list[UUID]
    next_at: datetime | None
    rolling: bool
    """Some deployment is in a rollout, whether or not a step of it is due."""


class Retirement(NamedTuple):
    changes: list[Change]
    """Changes that stop the tasks whose drain time is over."""
    next_at: datetime | None


async def lock(connection: AsyncConnection, workload_id: UUID) -> Deployment:
    workload = (await lock_workloads(connection, [workload_id]))[workload_id]
    row = (await connection.execute(select(workloads).where(workloads.c.id == workload_id))).one()
    return Deployment(
        workload,
        row.replicas,
        row.revision,
        row.requested_slots,
        row.next_index,
        option_columns.decode_rollout(row.rollout),
        (row.reason or {}).get("message"),
    )


async def members(connection: AsyncConnection, workload_ids: Collection[UUID]) -> dict[UUID, list[Member]]:
    """Return the tasks of each of these deployments: the current ones, and others that still occupy a node."""
    own = tasks.c
    rows = await connection.execute(
        select(
            own.workload_id, own.id, own.revision, own.status, own.ready_at, own.created_at, own.task_index, own.current
        ).where(among(own.workload_id, workload_ids), or_(own.current, own.status.in_(sorted(OCCUPYING))))
    )
    found: dict[UUID, list[Member]] = {id: [] for id in workload_ids}
    for workload_id, id, revision, status, ready_at, created_at, index, current in rows:
        found[workload_id].append(
            Member(id, revision, TaskStatus(status), ready_at, created_at, index, retiring=not current)
        )
    return found


async def due(connection: AsyncConnection, now: datetime) -> Due:
    """Return the deployments with a rollout step due, and the time of the next check of the others."""
    own = workloads.c
    rows = await connection.execute(
        select(own.id, own.name, own.replicas, own.revision, own.rollout)
        .where(own.rolling, own.ended_at.is_(None), own.stopping.is_(False))
        .order_by(own.id)
    )
    rolling = {row.id: (row, option_columns.decode_rollout(row.rollout)) for row in rows}
    found = await members(connection, rolling.keys()) if rolling else {}
    ids = [
        id
        for id, (row, rollout) in rolling.items()
        if progress(row.name, row.replicas, row.revision, rollout, found[id], now) is not None
    ]
    later = (
        at
        for id, (_, rollout) in rolling.items()
        if id not in ids
        for at in (rollout.due_at, steady_at(rollout, found[id], now))
    )
    return Due(ids, min((at for at in later if at is not None), default=None), bool(rolling))


async def scale(connection: AsyncConnection, workload_id: UUID, replicas: int, *, actor: str, now: datetime) -> Applied:
    """Scale up with new pending tasks, or down: broken tasks go first, then the newest.

    A rollout in progress continues towards the new number. Otherwise new tasks get the revision of most ready tasks,
    which has proven to work.
    """
    own = await lock(connection, workload_id)
    active = [member for member in (await members(connection, [workload_id]))[workload_id] if not member.retiring]
    step = Step() if own.rollout.phase is Phase.ROLLING else to_scale(replicas, active)
    if step.create and (model := proven(own.revision, active)) is not None:
        request = await connection.execute(select(tasks.c.requested_slots).where(tasks.c.id == model.id))
        own = replace(own, revision=model.revision, request=request.scalar_one())
    reason = Reason("scaled-down", f"Scaled down to {replicas}", "user")
    log = ChangeLog(actor, now)
    return await take(connection, own, step, reason, log, kind="scaled", replicas=replicas)


async def advance(connection: AsyncConnection, workload_id: UUID, *, now: datetime, term: int) -> Applied:
    """Take the deployment's next rollout step, if one is due."""
    own = await lock(connection, workload_id)
    found = await members(connection, [workload_id])
    came = progress(own.workload.name, own.replicas, own.revision, own.rollout, found[workload_id], now, own.lacks)
    if own.over or came is None:
        return Applied()
    reason = Reason("replaced", f"Replaced by revision {own.revision}", "rollouts", "never")
    log = ChangeLog("rollouts", now, term)
    return await take(connection, own, came.step, reason, log, kind=came.kind, said=came.said, **columns(came.rollout))


async def set_phase(connection: AsyncConnection, own: Deployment, phase: Phase, *, actor: str, now: datetime) -> None:
    """Pause or resume the replacement of tasks; retiring tasks still retire."""
    rollout = replace(own.rollout, phase=phase, progressed_at=now, reason=None)
    kind, said = ("paused", "Rollout paused") if phase is Phase.PAUSED else ("resumed", "Rollout resumed")
    log, reason = ChangeLog(actor, now), Reason(kind, said, "user")
    await take(connection, own, Step(), reason, log, kind=kind, said=said, **columns(rollout))


async def set_rollout_policy(
    connection: AsyncConnection, own: Deployment, rollout: Rollout, *, actor: str, now: datetime
) -> None:
    """Set the rollout policy for further replacements."""
    reason = Reason("bounds", "The rollout policy changed", "user")
    await take(connection, own, Step(), reason, ChangeLog(actor, now), kind="bounds", **columns(rollout))


def columns(rollout: Rollout) -> dict[str, Any]:
    """Return the `workloads` columns of a rollout."""
    return {"rollout": option_columns.encode_rollout(rollout), "rolling": rollout.unfinished}


async def take(
    connection: AsyncConnection,
    own: Deployment,
    step: Step,
    reason: Reason,
    log: ChangeLog,
    *,
    kind: str,
    said: str | None = None,
    **values: Any,
) -> Applied:
    """Create and retire tasks, and set new `values` of the workload's columns.

    `kind` is the event's kind, `said` the message in the history, and `reason` that of the retiring tasks.
    """
    workload = own.workload
    await connection.execute(
        update(workloads)
        .where(workloads.c.id == workload.id)
        .values(
            next_index=own.next_index + step.create,
            updated_at=log.now,
            version=workload.version + 1,
            **values,
        )
    )
    indexes = range(own.next_index, own.next_index + step.create)
    added = [NewTask(new_id(), workload.id, index, own.request, revision=own.revision) for index in indexes]
    log.add_event(events.NewEvent("workload", workload.id, workload.version + 1, kind, None, workload.id))
    if said is not None:
        log.add_status("workload", workload.id, workload.id, workload.status, workload.status, said)
    changes = await _retire(connection, own, step.retire, reason, log)
    writes = batch_sql.Writes.on(connection)
    insert_tasks(writes, added, log.now)
    log.write(writes)
    await writes.execute(connection)
    return await transitions.apply(connection, changes, actor=log.actor, now=log.now, term=log.term, also=[workload.id])


async def _retire(
    connection: AsyncConnection, own: Deployment, leaving: Sequence[Member], reason: Reason, log: ChangeLog
) -> list[Change]:
    """Remove tasks from the endpoints; ready ones may have open requests and stop after the drain time, others now."""
    drained = [member for member in leaving if member.ready] if own.rollout.drain_seconds else []
    retires_at = log.now + timedelta(seconds=own.rollout.drain_seconds)
    await connection.execute(
        update(tasks).where(tasks.c.id.in_([member.id for member in leaving])).values(current=False)
    )
    found = await connection.execute(
        update(tasks)
        .where(tasks.c.id.in_([member.id for member in drained]))
        .values(retires_at=retires_at, reason=reason.as_dict(), version=tasks.c.version + 1)
        .returning(tasks.c.id, tasks.c.version, tasks.c.node_id)
    )
    details = {"until": retires_at.isoformat()}
    for id, version, node_id in found:
        log.add_event(events.NewEvent("task", id, version, events.RETIRING, node_id, own.workload.id, details))
    staying = {member.id for member in drained}
    return [
        stop_change(member.id, member.status, reason)
        for member in leaving
        if member.id not in staying and not is_end(member.status)
    ]


async def retired(connection: AsyncConnection, now: datetime) -> Retirement:
    """Return the changes that stop tasks whose drain time is over, and the time at which the next one is due."""
    own = tasks.c
    due = await connection.execute(select(own.id, own.reason).where(_RETIRING, own.retires_at <= now).order_by(own.id))
    next_at = await connection.execute(
        select(func.min(own.retires_at, type_=own.retires_at.type)).where(_RETIRING, own.retires_at > now)
    )
    changes = [Change(row.id, TaskStatus.TERMINATING, Reason(**row.reason)) for row in due]
    return Retirement(changes, next_at.scalar_one())
