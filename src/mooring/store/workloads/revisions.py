"""Revisions of a deployment: its earlier templates, and the change to a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import Reason
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.tenants import Principal, Role
from mooring.model.workloads.constraints import Constraints
from mooring.model.workloads.containers import TaskTemplate
from mooring.model.workloads.lifetime.rollouts import Phase, Rollout, Step
from mooring.model.workloads.schedule import ScheduleOptions
from mooring.model.workloads.workload import Kind
from mooring.store.commit import replacements, transitions
from mooring.store.commit.history import ChangeLog
from mooring.store.commit.replacements import Replacement
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.core.constraint_columns import decode_constraints, encode_constraints
from mooring.store.core.types import AnyRow
from mooring.store.tables import tasks, users, workload_revisions, workloads
from mooring.store.workloads import rollouts, templates
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.store.workloads.option_columns import decode_options
from mooring.store.workloads.rollouts import Deployment

FIRST_CAUSE = "as submitted"


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    template: Mapping[str, Any]
    requested_slots: Mapping[str, int]
    cause: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Present:
    workload: NewWorkload
    """Existing workload in the form of a submission, without task ids: its tasks exist already."""
    revision: int


async def present(connection: AsyncConnection, workload_id: UUID) -> Present:
    row = (
        await connection.execute(
            select(workloads, users.c.name.label("username"), users.c.role)
            .join(users, users.c.id == workloads.c.user_id)
            .where(workloads.c.id == workload_id)
        )
    ).one()
    owner = Principal(
        user_id=row.user_id,
        username=row.username,
        role=Role(row.role),
        domain_id=row.domain_id,
        project_id=row.project_id,
        access_key=row.access_key,
    )
    workload = NewWorkload(
        id=row.id,
        name=row.name,
        kind=Kind(row.kind),
        type=row.type,
        principal=owner,
        pool_id=row.pool_id,
        replicas=row.replicas,
        template=templates.decode(_whole(row)),
        labels=row.labels,
        constraints=decode_constraints(row.constraints),
        task_ids=(),
        preemptible=row.preemptible,
        min_available=row.min_available,
        schedule=ScheduleOptions(private=row.private, starts_at=row.starts_at, booking=row.timeslot_id),
        **decode_options(row),
    )
    return Present(workload, row.revision)


async def of_workload(connection: AsyncConnection, workload_id: UUID) -> list[Revision]:
    """Return all revisions, oldest first; a deployment that never changed has only its submission."""
    own = workload_revisions.c
    rows = await connection.execute(
        select(own.number, own.template, own.requested_slots, own.cause, users.c.name, own.created_at)
        .join(users, users.c.id == own.created_by)
        .where(own.workload_id == workload_id)
        .order_by(own.number)
    )
    if found := [Revision(*row) for row in rows]:
        return found
    own_workload = workloads.c
    submitted = await connection.execute(
        select(
            own_workload.revision,
            own_workload.template,
            own_workload.architecture,
            own_workload.requested_slots,
            users.c.name,
            own_workload.created_at,
        )
        .join(users, users.c.id == own_workload.user_id)
        .where(own_workload.id == workload_id)
    )
    return [
        Revision(row.revision, _whole(row), row.requested_slots, FIRST_CAUSE, row.name, row.created_at)
        for row in submitted
    ]


def _whole(row: AnyRow) -> dict[str, Any]:
    """Return a workload's template with its architecture, which older rows store only in a column of its own."""
    return templates.encode(replace(templates.decode(row.template), architecture=row.architecture))


async def change(
    connection: AsyncConnection,
    own: Deployment,
    template: TaskTemplate,
    rollout: Rollout,
    constraints: Constraints,
    *,
    cause: str,
    replicas: int,
    user_id: UUID,
    now: datetime,
) -> Applied:
    """Write a new revision; the deployment's tasks are replaced by it from now on, or once the rollout is resumed.

    Pending tasks are replaced at once. Tasks made from an equal template stay and are assigned to the new revision.
    """
    workload_id, number = own.workload.id, own.revision + 1
    phase = rollout.phase if rollout.phase is Phase.PAUSED else Phase.ROLLING
    encoded = templates.encode(template)
    before = await _with_the_first(connection, workload_id)
    sets_of = {"workload_id": workload_id, "created_by": user_id, "created_at": now}
    new = {"number": number, "template": encoded, "requested_slots": requests_of(template), "cause": cause[:500]}
    await connection.execute(workload_revisions.insert().values(**sets_of, **new))
    alike = [revision.number for revision in before if templates.decode(revision.template) == template]
    await connection.execute(
        update(tasks)
        .where(tasks.c.workload_id == workload_id, tasks.c.current, tasks.c.revision.in_(alike))
        .values(revision=number)
    )
    actor = str(user_id)
    applied = await rollouts.take(
        connection,
        own,
        Step(),
        Reason("updated", cause, "user"),
        ChangeLog(actor, now),
        kind="updated",
        said=f"Revision {number}: {cause}",
        replicas=replicas,
        revision=number,
        template=encoded,
        requested_slots=requests_of(template),
        architecture=template.architecture,
        constraints=encode_constraints(constraints),
        **rollouts.columns(replace(rollout, phase=phase, ready=0, progressed_at=now, reason=None)),
    )
    applied.tasks += await _replace_pending(connection, workload_id, number, actor=actor, now=now)
    return applied


async def _replace_pending(
    connection: AsyncConnection, workload_id: UUID, number: int, *, actor: str, now: datetime
) -> Sequence[tuple[Change, TaskStatus]]:
    """Replace the tasks of earlier revisions that have not been placed, and return their changes."""
    waiting = await connection.execute(
        select(tasks.c.id).where(
            tasks.c.workload_id == workload_id,
            tasks.c.current,
            tasks.c.revision != number,
            tasks.c.status.in_([TaskStatus.PENDING, TaskStatus.RESERVED]),
        )
    )
    outdated = list(waiting.scalars())
    if not outdated:
        return ()
    reason = Reason("replaced", f"Replaced by revision {number}", "rollouts", "never")
    changes = [Change(id, TaskStatus.CANCELLED, reason) for id in outdated]
    applied = await transitions.apply(connection, changes, actor=actor, now=now)
    again = [Replacement(id, workload_id) for id in outdated]
    await replacements.replace_tasks(connection, again, actor=actor, now=now, term=None, renewed=True)
    return applied.tasks


async def _with_the_first(connection: AsyncConnection, workload_id: UUID) -> list[Revision]:
    """Return all revisions, and write the first if it has no row yet: it gets one only when there is a second."""
    found = await of_workload(connection, workload_id)
    owner = select(workloads.c.user_id).where(workloads.c.id == workload_id).scalar_subquery()
    written = select(workload_revisions.c.number).where(workload_revisions.c.workload_id == workload_id)
    if (await connection.execute(written.limit(1))).first() is None:
        (first,) = found
        await connection.execute(
            workload_revisions.insert().values(
                workload_id=workload_id,
                number=first.number,
                template=first.template,
                requested_slots=first.requested_slots,
                cause=first.cause,
                created_by=owner,
                created_at=first.created_at,
            )
        )
    return found
