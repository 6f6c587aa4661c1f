"""The workloads that mount each volume."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.tenancy.access import Sight
from mooring.store.core.batch_sql import among
from mooring.store.tables import users, workload_volumes, workloads
from mooring.store.views.visibility import shown_to


class MountingWorkload(NamedTuple):
    workload_id: UUID
    workload: str
    user: str


async def uses(
    connection: AsyncConnection, volume_ids: Collection[UUID], sight: Sight
) -> dict[UUID, list[MountingWorkload]]:
    """Return the visible workloads that mount each volume and have not ended, by volume."""
    rows = await connection.execute(
        select(workload_volumes.c.volume_id, workloads.c.id, workloads.c.name, users.c.name.label("user"))
        .join(workloads, workloads.c.id == workload_volumes.c.workload_id)
        .join(users, users.c.id == workloads.c.user_id)
        .where(among(workload_volumes.c.volume_id, volume_ids), workloads.c.ended_at.is_(None), shown_to(sight))
        .order_by(workloads.c.name, workloads.c.id)
    )
    found: dict[UUID, list[MountingWorkload]] = defaultdict(list)
    for volume_id, *use in rows:
        found[volume_id].append(MountingWorkload(*use))
    return found
