"""Deployments over time: from one template to the next task by task, more of them, fewer, and the stop of what retires.

What fails on the way comes again as it was: only a step of the rollout takes a task to another revision, so that a bad
one spreads no further than its bounds.
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
from mooring.model.rollouts import Member, Phase, Rollout, Step, progress, proven, steady_at, to_scale
from mooring.model.slots import Amounts
from mooring.store import events, rollout_states, sets, transitions
from mooring.store.changes import Applied, Change
from mooring.store.history import Journal
from mooring.store.ids import new_id
from mooring.store.loading import LoadedWorkload, lock_workloads
from mooring.store.sets import among
from mooring.store.tables import tasks, workloads
from mooring.store.workloads import NewTask, ending, insert_tasks

_ON_A_NODE = OCCUPYING - {TaskStatus.RESERVED, TaskStatus.TERMINATING}
_RETIRING: ColumnElement[bool] = and_(
    tasks.c.retires_at.is_not(None), tasks.c.ended_at.is_(None), tasks.c.status.in_(sorted(_ON_A_NODE))
)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment whose row is locked, as far as its tasks are made and replaced by it."""

    workload: LoadedWorkload
    replicas: int
    revision: int
    request: Amounts
    next_index: int
    rollout: Rollout
    lacks: str | None
    """Why tasks of it wait."""

    @property
    def over(self) -> bool:
        return self.workload.stopping or self.workload.ended_at is not None


class Due(NamedTuple):
    workload_ids: list[UUID]
    next_at: datetime | None


class Retirement(NamedTuple):
    changes: list[Change]
    """Whose time is over."""
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
        rollout_states.decode(row.rollout),
        (row.reason or {}).get("message"),
    )


async def members(connection: AsyncConnection, workload_ids: Collection[UUID]) -> dict[UUID, list[Member]]:
    """Of each of these the tasks that are wanted, and those that are still there."""
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
    """The deployments that have a step to take to their newest revision, and when to look again at the others."""
    own = workloads.c
    rows = await connection.execute(
        select(own.id, own.name, own.replicas, own.revision, own.rollout)
        .where(own.rolling, own.ended_at.is_(None), own.stopping.is_(False))
        .order_by(own.id)
    )
    rolling = {row.id: (row, rollout_states.decode(row.rollout)) for row in rows}
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
    return Due(ids, min((at for at in later if at is not None), default=None))


async def scale(connection: AsyncConnection, workload_id: UUID, replicas: int, *, actor: str, now: datetime) -> Applied:
    """Grow by new tasks that wait, or shrink by what is broken first, then the newest.

    While tasks are being replaced, that goes on towards the new number. Where that rests, what most tasks that are
    ready were made from has shown that it works: it grows by that.
    """
    own = await lock(connection, workload_id)
    kept = [member for member in (await members(connection, [workload_id]))[workload_id] if not member.retiring]
    step = Step() if own.rollout.phase is Phase.ROLLING else to_scale(replicas, kept)
    if step.create and (model := proven(own.revision, kept)) is not None:
        request = await connection.execute(select(tasks.c.requested_slots).where(tasks.c.id == model.id))
        own = replace(own, revision=model.revision, request=request.scalar_one())
    reason = Reason("scaled-down", f"Scaled down to {replicas}", "user")
    journal = Journal(actor, now)
    return await take(connection, own, step, reason, journal, kind="scaled", replicas=replicas)


async def advance(connection: AsyncConnection, workload_id: UUID, *, now: datetime, term: int) -> Applied:
    """The next step of a deployment to its newest revision, if there is one to take now."""
    own = await lock(connection, workload_id)
    found = await members(connection, [workload_id])
    came = progress(own.workload.name, own.replicas, own.revision, own.rollout, found[workload_id], now, own.lacks)
    if own.over or came is None:
        return Applied()
    reason = Reason("replaced", f"Replaced by revision {own.revision}", "rollouts", "never")
    journal = Journal("rollouts", now, term)
    return await take(
        connection, own, came.step, reason, journal, kind=came.kind, said=came.said, **columns(came.rollout)
    )


async def set_phase(connection: AsyncConnection, own: Deployment, phase: Phase, *, actor: str, now: datetime) -> None:
    """Let the replacing of tasks rest, or go on; what is retiring retires."""
    rollout = replace(own.rollout, phase=phase, progressed_at=now, reason=None)
    kind, said = ("paused", "Rollout paused") if phase is Phase.PAUSED else ("resumed", "Rollout resumed")
    journal, reason = Journal(actor, now), Reason(kind, said, "user")
    await take(connection, own, Step(), reason, journal, kind=kind, said=said, **columns(rollout))


async def set_bounds(
    connection: AsyncConnection, own: Deployment, rollout: Rollout, *, actor: str, now: datetime
) -> None:
    """How tasks are replaced from now on."""
    reason = Reason("bounds", "Replaced in another way from now on", "user")
    await take(connection, own, Step(), reason, Journal(actor, now), kind="bounds", **columns(rollout))


def columns(rollout: Rollout) -> dict[str, Any]:
    """Of `workloads`."""
    return {"rollout": rollout_states.encode(rollout), "rolling": rollout.unfinished}


async def take(
    connection: AsyncConnection,
    own: Deployment,
    step: Step,
    reason: Reason,
    journal: Journal,
    *,
    kind: str,
    said: str | None = None,
    **values: Any,
) -> Applied:
    """Make and retire tasks, with new `values` of the workload's columns.

    `kind`: of the event. `said`: in the history. `reason`: why what retires does.
    """
    workload = own.workload
    await connection.execute(
        update(workloads)
        .where(workloads.c.id == workload.id)
        .values(
            next_index=own.next_index + step.create,
            updated_at=journal.now,
            version=workload.version + 1,
            **values,
        )
    )
    indexes = range(own.next_index, own.next_index + step.create)
    added = [NewTask(new_id(), workload.id, index, own.request, revision=own.revision) for index in indexes]
    journal.tell(events.NewEvent("workload", workload.id, workload.version + 1, kind, None, workload.id))
    if said is not None:
        journal.note("workload", workload.id, workload.id, workload.status, workload.status, said)
    changes = await _retire(connection, own, step.retire, reason, journal)
    writes = sets.Writes.on(connection)
    insert_tasks(writes, added, journal.now)
    journal.write(writes)
    await writes.make(connection)
    return await transitions.apply(
        connection, changes, actor=journal.actor, now=journal.now, term=journal.term, also=[workload.id]
    )


async def _retire(
    connection: AsyncConnection, own: Deployment, leaving: Sequence[Member], reason: Reason, journal: Journal
) -> list[Change]:
    """Nobody is sent to these any more. What somebody may have been sent to is stopped a little later, all else now."""
    drained = [member for member in leaving if member.ready] if own.rollout.drain_seconds else []
    retires_at = journal.now + timedelta(seconds=own.rollout.drain_seconds)
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
        journal.tell(events.NewEvent("task", id, version, events.RETIRING, node_id, own.workload.id, details))
    staying = {member.id for member in drained}
    return [
        ending(member.id, member.status, reason)
        for member in leaving
        if member.id not in staying and not is_end(member.status)
    ]


async def retired(connection: AsyncConnection, now: datetime) -> Retirement:
    """The tasks that nobody was sent to for long enough, and when the next one follows."""
    own = tasks.c
    due = await connection.execute(select(own.id, own.reason).where(_RETIRING, own.retires_at <= now).order_by(own.id))
    next_at = await connection.execute(
        select(func.min(own.retires_at, type_=own.retires_at.type)).where(_RETIRING, own.retires_at > now)
    )
    changes = [Change(row.id, TaskStatus.TERMINATING, Reason(**row.reason)) for row in due]
    return Retirement(changes, next_at.scalar_one())
