"""What is kept about a tenant in other tables goes with it: its quotas, and its access to pools."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.quotas import Tenant
from mooring.store.tables import pool_access, tenant_resources


async def forget(connection: AsyncConnection, gone: Iterable[Tenant]) -> None:
    for tenant in gone:
        for table in (tenant_resources, pool_access):
            this = (table.c.scope == tenant.scope.value) & (table.c.tenant_id == tenant.id)
            await connection.execute(delete(table).where(this))
