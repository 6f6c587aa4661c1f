"""Fair share: ranks and weights of tenants. Occupancy: amounts by keypair, user, project, domain and node."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, User
from mooring.api.middleware.errors import problems
from mooring.model.resources.slots import slot_type
from mooring.model.tenancy.access import sight
from mooring.store.views import occupancy as views
from mooring.wire.fields import Name
from mooring.wire.tenancy.shares import (
    Axis,
    OccupancyLine,
    OccupancyReport,
    ShareList,
    WeightedScope,
    WeightRequest,
)

router = APIRouter(prefix="/api", tags=["accounting"], responses=problems(401, 422, 503))


@router.get("/shares", operation_id="list_shares", responses=problems(404))
async def list_shares(services: Served, principal: User, pool: Name = "default") -> ShareList:
    """List weight, past usage, factor and rank of the tenants of a pool that the caller may see."""
    services.rates.query(principal)
    return await services.shares.of_pool(principal, pool)


@router.put(
    "/shares/{scope}/{tenant}",
    operation_id="set_weight",
    status_code=204,
    responses=problems(403, 404, 422),
)
async def set_weight(
    services: Served, principal: User, scope: WeightedScope, tenant: str, request: WeightRequest
) -> None:
    """Set the fair-share weight of a tenant, by its name or id."""
    await services.shares.set_weight(principal, scope, tenant, request.weight)


@router.get("/occupancy", operation_id="get_occupancy")
async def get_occupancy(
    services: Served,
    principal: User,
    by: Annotated[list[Axis] | None, Query(description="Axes to show (default: all)")] = None,
) -> OccupancyReport:
    """Occupancy of keypairs, users, projects, domains and nodes, from one snapshot of the ledger."""
    services.rates.query(principal)
    async with services.database.read() as connection:
        rows = await views.occupied(connection, sight(principal), frozenset(by or ()))
    return OccupancyReport(
        occupancy=[
            OccupancyLine(
                axis=row.axis,
                name=row.name,
                slot=row.slot,
                amount=row.amount,
                shown=slot_type(row.slot).format(row.amount),
            )
            for row in rows
        ]
    )
