"""Memberships of users in projects, with their roles there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.tenants import Role
from mooring.store.core.inserts import insert_new
from mooring.store.tables import keypairs, memberships, users, workloads
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.projects import Project
from mooring.store.tenancy.users import User


@dataclass(frozen=True, slots=True)
class Member:
    username: str
    role: Role
    active: bool
    created_at: datetime


async def of_project(connection: AsyncConnection, project_id: UUID) -> list[Member]:
    rows = await connection.execute(
        select(users.c.name, memberships.c.role, users.c.active, memberships.c.created_at)
        .join(users, users.c.id == memberships.c.user_id)
        .where(memberships.c.project_id == project_id)
        .order_by(users.c.name)
    )
    return [Member(row.name, Role(row.role), row.active, row.created_at) for row in rows]


async def add(
    connection: AsyncConnection, project: Project, user: User, role: Role, *, actor: Actor, now: datetime
) -> None:
    """Add a user of the project's domain to the project, or change the role of a member."""
    if user.domain_id != project.domain_id:
        raise not_there(f"user {user.username!r}")
    values = {"user_id": user.id, "project_id": project.id, "role": role.value, "created_at": now}
    before = None
    if not await insert_new(connection, memberships, values):
        present = await connection.execute(select(memberships.c.role).where(_this(project, user)).with_for_update())
        before = {"user": user.username, "role": present.scalar_one()}
        await connection.execute(update(memberships).where(_this(project, user)).values(role=role.value))
    await admin_actions.record(
        connection,
        actor,
        "add-member",
        "project",
        project.path,
        now=now,
        before=before,
        after={"user": user.username, "role": role.value},
    )


async def remove(connection: AsyncConnection, project: Project, user: User, *, actor: Actor, now: datetime) -> None:
    """Remove a membership and deactivate the user's keypairs in the project, which closes their open connections.

    Raise Conflict while the user has live workloads there: their owner could no longer end them.
    """
    role = (await connection.execute(select(memberships.c.role).where(_this(project, user)))).scalar_one_or_none()
    if role is None:
        raise not_there(f"member {user.username!r} of project {project.name!r}")
    if user.project_id == project.id:
        raise Conflict(
            f"{project.name!r} is the default project of {user.username!r}; give the user another one first",
            code="default-project",
        )
    alive = await connection.execute(
        select(func.count())
        .select_from(workloads)
        .where(workloads.c.user_id == user.id, workloads.c.project_id == project.id, workloads.c.ended_at.is_(None))
    )
    if count := alive.scalar_one():
        raise Conflict(
            f"{user.username!r} still has {count} workloads in project {project.name!r}; end them first, "
            "or deactivate the user to end its access now",
            code="in-use",
            details={"workloads": count},
        )
    await connection.execute(
        update(keypairs)
        .where(keypairs.c.user_id == user.id, keypairs.c.project_id == project.id, keypairs.c.active)
        .values(active=False, version=keypairs.c.version + 1)
    )
    await connection.execute(delete(memberships).where(_this(project, user)))
    before = {"user": user.username, "role": role}
    await admin_actions.record(connection, actor, "remove-member", "project", project.path, now=now, before=before)


def _this(project: Project, user: User) -> ColumnElement[bool]:
    return (memberships.c.user_id == user.id) & (memberships.c.project_id == project.id)
