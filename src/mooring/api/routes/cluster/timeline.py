"""The time ahead: what runs, is booked, planned and free."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.access import Served, needs
from mooring.api.errors import problems
from mooring.model.access import Action
from mooring.model.tenants import Principal
from mooring.wire.fields import Name
from mooring.wire.timeline import TimelineView

router = APIRouter(prefix="/api", tags=["timeline"], responses=problems(401, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]


@router.get("/timeline", operation_id="get_timeline", responses=problems(404))
async def get_timeline(
    services: Served,
    principal: Reader,
    pool: Name | None = None,
    hours: Annotated[int, Query(ge=1, le=24 * 31)] = 24,
    steps: Annotated[int, Query(ge=1, le=500, description="Into how many the hours are divided")] = 48,
    nodes: Annotated[bool, Query(description="Each node, instead of all of a pool together")] = False,
) -> TimelineView:
    """The hours ahead in steps, pool by pool: what runs until when, what is booked and planned, what is free."""
    services.rates.question(principal)
    return await services.questions.timeline(pool, hours=hours, steps=steps, by_node=nodes)
