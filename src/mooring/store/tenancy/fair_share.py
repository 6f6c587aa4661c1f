"""Fair-share weights of domains, projects and users, and the resources that users hold in a pool."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.fair_share import DEFAULT_WEIGHT, Weights
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.store.core import batch_sql
from mooring.store.core.inserts import insert_or_replace
from mooring.store.tables import domains, fair_share_weights, memberships, projects, tenant_resources, users

_own = fair_share_weights.c


async def weights(connection: AsyncConnection) -> Weights:
    """Return the weights that differ from the default."""
    found: dict[str, dict[UUID, int]] = {Scope.DOMAIN: {}, Scope.PROJECT: {}, Scope.USER: {}}
    for scope, tenant_id, weight in await connection.execute(select(_own.scope, _own.tenant_id, _own.weight)):
        found[scope][UUID(tenant_id)] = weight
    return Weights(found[Scope.DOMAIN], found[Scope.PROJECT], found[Scope.USER])


async def set_weight(connection: AsyncConnection, tenant: Tenant, weight: int) -> int:
    """Set the weight of a tenant and return its previous weight."""
    key = {"scope": tenant.scope.value, "tenant_id": tenant.id}
    this = (_own.scope == tenant.scope.value) & (_own.tenant_id == tenant.id)
    before = await connection.scalar(select(_own.weight).where(this))
    if weight == DEFAULT_WEIGHT:
        await connection.execute(delete(fair_share_weights).where(this))
    else:
        await insert_or_replace(connection, fair_share_weights, key, {"weight": weight})
    return DEFAULT_WEIGHT if before is None else int(before)


async def held_by_users(connection: AsyncConnection, pool: str) -> dict[UUID, dict[str, int]]:
    """Return the amounts by slot that each user currently has reserved or uses in the pool."""
    own = tenant_resources.c
    rows = await connection.execute(
        select(own.tenant_id, own.slot_name, own.reserved + own.used).where(
            own.scope == Scope.USER.value, own.pool == pool, own.reserved + own.used > 0
        )
    )
    found: dict[UUID, dict[str, int]] = {}
    for tenant_id, slot, amount in rows:
        found.setdefault(UUID(tenant_id), {})[slot] = int(amount)
    return found


class Member(NamedTuple):
    """A user in one of its projects, with its domain."""

    domain_id: UUID
    domain: str
    project_id: UUID
    project: str
    user_id: UUID
    user: str


async def members(connection: AsyncConnection, user_ids: Collection[UUID]) -> list[Member]:
    """Return the memberships of these users."""
    rows = await connection.execute(
        select(domains.c.id, domains.c.name, projects.c.id, projects.c.name, users.c.id, users.c.name)
        .select_from(memberships)
        .join(users, users.c.id == memberships.c.user_id)
        .join(projects, projects.c.id == memberships.c.project_id)
        .join(domains, domains.c.id == projects.c.domain_id)
        .where(batch_sql.among(users.c.id, user_ids))
    )
    return [Member(*row) for row in rows]
