"""Removal of a tenant's rows in other tables: its quotas and usage, its pool access and its fair-share weight."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.quotas import Tenant
from mooring.store.tables import fair_share_weights, pool_access, tenant_resources


async def forget(connection: AsyncConnection, gone: Iterable[Tenant]) -> None:
    for tenant in gone:
        for table in (tenant_resources, pool_access, fair_share_weights):
            this = (table.c.scope == tenant.scope.value) & (table.c.tenant_id == tenant.id)
            await connection.execute(delete(table).where(this))
