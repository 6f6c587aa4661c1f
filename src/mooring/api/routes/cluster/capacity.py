"""The capacity of each pool in sums, however many nodes it has."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.api.serializers import slot_view
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.store.views import pool_capacity as views
from mooring.wire.cluster.capacity import CapacityList, PoolCapacity

router = APIRouter(prefix="/api/capacity", tags=["pools"], responses=problems(401, 422, 503))


@router.get("", operation_id="list_capacity")
async def list_capacity(services: Served, _principal: Annotated[Principal, needs(Action.SEE_CLUSTER)]) -> CapacityList:
    """Return the capacity, the allocations and the states of all nodes by pool. Pools without nodes are left out."""
    async with services.database.read() as connection:
        rows = await views.by_pool(connection)
    return CapacityList(
        pools=[
            PoolCapacity(
                pool=row.pool,
                states=dict(row.states),
                slots={name: slot_view(name, slot) for name, slot in row.slots.items()},
            )
            for row in rows
        ]
    )
