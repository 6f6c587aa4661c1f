"""Access to pools: a pool that is not public is limited to the tenants with a grant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.inserts import insert_new
from mooring.store.nodes.pools import Pool
from mooring.store.tables import domains, pool_access, pools, projects
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import Actor

Grants = Mapping[UUID, frozenset[Tenant]]
"""Tenants with access, by pool id."""


def may_use(pool: Pool, principal: Principal, grants: Grants) -> bool:
    """Return whether this principal's workloads may use the pool."""
    if pool.policy.public or principal.is_admin:
        return True
    own = {
        Tenant(Scope.KEYPAIR, principal.access_key),
        Tenant(Scope.USER, str(principal.user_id)),
        Tenant(Scope.PROJECT, str(principal.project_id)),
        Tenant(Scope.DOMAIN, str(principal.domain_id)),
    }
    return not own.isdisjoint(grants.get(pool.id, frozenset()))


async def grants(connection: AsyncConnection) -> Grants:
    found: dict[UUID, set[Tenant]] = {}
    for row in await connection.execute(select(pool_access)):
        found.setdefault(row.pool_id, set()).add(Tenant(Scope(row.scope), row.tenant_id))
    return {pool_id: frozenset(tenants) for pool_id, tenants in found.items()}


async def of_pool(connection: AsyncConnection, pool: str) -> list[tuple[Tenant, str]]:
    """Return the tenants with access, each with its display name."""
    pool_id = await _pool_id(connection, pool)
    path = domains.c.name + "/" + projects.c.name
    names: dict[str, str] = {
        str(row.id): row.name
        for query in (
            select(domains.c.id, domains.c.name),
            select(projects.c.id, path.label("name")).join(domains, domains.c.id == projects.c.domain_id),
        )
        for row in await connection.execute(query)
    }
    granted = (await grants(connection)).get(pool_id, frozenset())
    return sorted((tenant, names.get(tenant.id, tenant.id)) for tenant in granted)


async def grant(
    connection: AsyncConnection, pool: str, tenant: Tenant, name: str, *, actor: Actor, now: datetime
) -> None:
    """Grant access; granting it again has no effect."""
    pool_id = await _pool_id(connection, pool)
    values = {"pool_id": pool_id, "scope": tenant.scope.value, "tenant_id": tenant.id}
    if await insert_new(connection, pool_access, values):
        after = {"scope": tenant.scope.value, "tenant": name}
        await admin_actions.record(connection, actor, "grant-access", "pool", pool, now=now, after=after)


async def revoke(
    connection: AsyncConnection, pool: str, tenant: Tenant, name: str, *, actor: Actor, now: datetime
) -> None:
    """Revoke access; workloads submitted before are not affected."""
    this = (
        (pool_access.c.pool_id == await _pool_id(connection, pool))
        & (pool_access.c.scope == tenant.scope.value)
        & (pool_access.c.tenant_id == tenant.id)
    )
    if (await connection.execute(delete(pool_access).where(this))).rowcount == 0:
        raise not_there(f"access of {tenant.scope} {name!r} to pool {pool[:63]!r}")
    before = {"scope": tenant.scope.value, "tenant": name}
    await admin_actions.record(connection, actor, "revoke-access", "pool", pool, now=now, before=before)


async def _pool_id(connection: AsyncConnection, name: str) -> UUID:
    found: UUID | None = (await connection.execute(select(pools.c.id).where(pools.c.name == name))).scalar_one_or_none()
    if found is None:
        raise not_there(f"pool {name[:63]!r}")
    return found
