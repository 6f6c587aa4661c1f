"""Domains, the outermost tenants. Users of an inactive domain have no access."""

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
from mooring.store.tables import domains, policies, projects, users
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.tenancy.policies import id_of, notify
from mooring.store.tenancy.tenant_cleanup import forget


@dataclass(frozen=True, slots=True)
class Domain:
    id: UUID
    name: str
    active: bool
    policy: str | None
    created_at: datetime
    version: int

    @property
    def target(self) -> Target:
        return Target(self.id)

    @property
    def state(self) -> admin_actions.State:
        return {"name": self.name, "active": self.active, "policy": self.policy}


async def ensure(connection: AsyncConnection, name: str, now: datetime) -> UUID:
    await insert_new(connection, domains, {"id": new_id(), "name": name, "created_at": now})
    domain_id: UUID = (await connection.execute(select(domains.c.id).where(domains.c.name == name))).scalar_one()
    return domain_id


async def create(connection: AsyncConnection, name: str, *, actor: Actor, now: datetime) -> Domain:
    if not await insert_new(connection, domains, {"id": new_id(), "name": name, "created_at": now}):
        raise Conflict(f"there is a domain {name!r} already", code="domain-exists")
    made = await find(connection, name)
    await admin_actions.created(connection, actor, "domain", name, made, now)
    return made


async def find(connection: AsyncConnection, name: str) -> Domain:
    row = (await connection.execute(_domains().where(domains.c.name == name))).one_or_none()
    if row is None:
        raise not_there(f"domain {name[:63]!r}")
    return Domain(**row._mapping)


async def every(connection: AsyncConnection, *, only: UUID | None = None) -> list[Domain]:
    query = _domains().order_by(domains.c.name)
    if only is not None:
        query = query.where(domains.c.id == only)
    return [Domain(**row._mapping) for row in await connection.execute(query)]


async def change(
    connection: AsyncConnection,
    name: str,
    *,
    active: bool | None = None,
    policy: str | None = None,
    actor: Actor,
    now: datetime,
) -> Domain:
    """Change the given attributes; the policy "" removes the policy."""
    await connection.execute(select(domains.c.id).where(domains.c.name == name).with_for_update())
    before = await find(connection, name)
    values: dict[str, Any] = {}
    if active is not None:
        values["active"] = active
    if policy is not None:
        values["policy_id"] = await id_of(connection, policy)
    await connection.execute(
        update(domains).where(domains.c.id == before.id).values(**values, version=domains.c.version + 1)
    )
    after = await find(connection, name)
    await admin_actions.changed(connection, actor, "domain", name, before, after, now)
    if policy is not None or active is not None:
        await notify(connection, after.id, after.version, now)
    return after


async def remove(connection: AsyncConnection, name: str, *, actor: Actor, now: datetime) -> None:
    """Remove the domain; raise Conflict if it still has projects or users."""
    found = await find(connection, name)
    for table, what in ((users, "users"), (projects, "projects")):
        number = await connection.execute(select(func.count()).select_from(table).where(table.c.domain_id == found.id))
        if count := number.scalar_one():
            raise Conflict(
                f"domain {name!r} still has {count} {what}; remove them first, or deactivate the domain",
                code="in-use",
                details={what: count},
            )
    await forget(connection, [Tenant(Scope.DOMAIN, str(found.id))])
    await connection.execute(delete(domains).where(domains.c.id == found.id))
    await admin_actions.removed(connection, actor, "domain", name, found, now)


def _domains() -> Select[Any]:
    return select(
        domains.c.id,
        domains.c.name,
        domains.c.active,
        policies.c.name.label("policy"),
        domains.c.created_at,
        domains.c.version,
    ).join(policies, policies.c.id == domains.c.policy_id, isouter=True)
