"""Projects, the tenants that own workloads. An inactive project accepts no new workloads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.errors import Conflict
from mooring.model.tenancy.access import Target, not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.core.ids import new_id
from mooring.store.core.inserts import insert_new
from mooring.store.tables import (
    domains,
    keypairs,
    memberships,
    policies,
    projects,
    timeslots,
    users,
    volumes,
    workloads,
)
from mooring.store.tenancy import admin_actions, sealed_rows
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.domains import Domain
from mooring.store.tenancy.policies import id_of, notify
from mooring.store.tenancy.tenant_cleanup import forget


@dataclass(frozen=True, slots=True)
class Project:
    id: UUID
    name: str
    domain_id: UUID
    domain: str
    active: bool
    policy: str | None
    members: int
    created_at: datetime
    version: int

    @property
    def target(self) -> Target:
        return Target(self.domain_id, self.id)

    @property
    def path(self) -> str:
        """The name with the domain, unique across domains."""
        return f"{self.domain}/{self.name}"

    @property
    def state(self) -> admin_actions.State:
        return {"name": self.name, "domain": self.domain, "active": self.active, "policy": self.policy}


async def ensure(
    connection: AsyncConnection, domain_id: UUID, name: str, now: datetime, actor: Actor = admin_actions.SERVER
) -> tuple[UUID, bool]:
    """Return the project's id and whether it is new; a new project gets the next free number."""
    this = (projects.c.domain_id == domain_id) & (projects.c.name == name)
    is_new = False
    while True:
        row = (await connection.execute(_projects().where(this))).one_or_none()
        if row is not None:
            found = Project(**row._mapping)
            if is_new:
                await admin_actions.created(connection, actor, "project", found.path, found, now)
            return found.id, is_new
        number = (await connection.execute(select(func.coalesce(func.max(projects.c.number), 0) + 1))).scalar_one()
        # The insert does nothing if another transaction has taken the name or the number: try again.
        is_new = await insert_new(
            connection,
            projects,
            {"id": new_id(), "domain_id": domain_id, "name": name, "number": number, "created_at": now},
        )


async def create(connection: AsyncConnection, domain: Domain, name: str, *, actor: Actor, now: datetime) -> Project:
    _, is_new = await ensure(connection, domain.id, name, now, actor)
    if not is_new:
        raise Conflict(f"domain {domain.name!r} has a project {name!r} already", code="project-exists")
    return await find(connection, domain.name, name)


async def find(connection: AsyncConnection, domain: str, name: str) -> Project:
    this = (domains.c.name == domain) & (projects.c.name == name)
    row = (await connection.execute(_projects().where(this))).one_or_none()
    if row is None:
        raise not_there(f"project {name[:63]!r} in domain {domain[:63]!r}")
    return Project(**row._mapping)


async def every(
    connection: AsyncConnection, *, domain_id: UUID | None = None, only: frozenset[UUID] | None = None
) -> list[Project]:
    """Return all projects, or those of one domain or among the given ids."""
    query = _projects().order_by(domains.c.name, projects.c.name)
    if domain_id is not None:
        query = query.where(projects.c.domain_id == domain_id)
    if only is not None:
        query = query.where(projects.c.id.in_(sorted(only)))
    return [Project(**row._mapping) for row in await connection.execute(query)]


async def change(
    connection: AsyncConnection,
    domain: str,
    name: str,
    *,
    active: bool | None = None,
    policy: str | None = None,
    actor: Actor,
    now: datetime,
) -> Project:
    """Change the given attributes; the policy "" removes the policy."""
    this = (await find(connection, domain, name)).id
    await connection.execute(select(projects.c.id).where(projects.c.id == this).with_for_update())
    before = await find(connection, domain, name)
    values: dict[str, Any] = {}
    if active is not None:
        values["active"] = active
    if policy is not None:
        values["policy_id"] = await id_of(connection, policy)
    await connection.execute(
        update(projects).where(projects.c.id == this).values(**values, version=projects.c.version + 1)
    )
    after = await find(connection, domain, name)
    await admin_actions.changed(connection, actor, "project", after.path, before, after, now)
    if policy is not None or active is not None:
        await notify(connection, after.id, after.version, now)
    return after


async def remove(connection: AsyncConnection, domain: str, name: str, *, actor: Actor, now: datetime) -> None:
    """Remove the project with its memberships, keypairs, secrets and registry logins.

    Raise Conflict if it is a user's default project or if workloads, timeslots or volumes of it are still stored.
    """
    found = await find(connection, domain, name)
    for table, what in (
        (users, "users have it as their default"),
        (workloads, "recorded workloads belong to it"),
        (timeslots, "recorded bookings belong to it"),
        (volumes, "volumes belong to it"),
    ):
        number = await connection.execute(select(func.count()).select_from(table).where(table.c.project_id == found.id))
        if count := number.scalar_one():
            raise Conflict(
                f"project {name!r} cannot be removed: {count} {what}; deactivate it instead",
                code="in-use",
                details={table.name: count},
            )
    own = (await connection.execute(select(keypairs.c.access_key).where(keypairs.c.project_id == found.id))).scalars()
    await forget(connection, [Tenant(Scope.PROJECT, str(found.id)), *(Tenant(Scope.KEYPAIR, key) for key in own)])
    await sealed_rows.remove_all(connection, found.id)
    for table in (keypairs, memberships):
        await connection.execute(delete(table).where(table.c.project_id == found.id))
    await connection.execute(delete(projects).where(projects.c.id == found.id))
    await admin_actions.removed(connection, actor, "project", found.path, found, now)


def _projects() -> Select[Any]:
    members = (
        select(func.count())
        .select_from(memberships)
        .where(memberships.c.project_id == projects.c.id)
        .correlate(projects)
        .scalar_subquery()
    )
    return (
        select(
            projects.c.id,
            projects.c.name,
            projects.c.domain_id,
            domains.c.name.label("domain"),
            projects.c.active,
            policies.c.name.label("policy"),
            members.label("members"),
            projects.c.created_at,
            projects.c.version,
        )
        .join(domains, domains.c.id == projects.c.domain_id)
        .join(policies, policies.c.id == projects.c.policy_id, isouter=True)
    )
