"""The timeline: running, booked, planned and free capacity."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.concurrency.workers import off_loop
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.wire.cluster.timeline import TimelineView
from mooring.wire.fields import Name

router = APIRouter(prefix="/api", tags=["timeline"], responses=problems(401, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]


@router.get("/timeline", operation_id="get_timeline", response_model=TimelineView, responses=problems(404))
async def get_timeline(
    services: Served,
    principal: Reader,
    pool: Name | None = None,
    hours: Annotated[int, Query(ge=1, le=24 * 31)] = 24,
    steps: Annotated[int, Query(ge=1, le=500, description="Number of steps")] = 48,
    nodes: Annotated[bool, Query(description="By node instead of by pool")] = False,
) -> Response:
    """Get running, booked, planned and free capacity of the coming hours, in steps, by pool."""
    services.rates.query(principal)
    seen = await services.queries.timeline(pool, hours=hours, steps=steps, by_node=nodes)
    # Up to hundreds of thousands of numbers: written off the event loop.
    return Response(await off_loop(seen.model_dump_json), media_type="application/json")
