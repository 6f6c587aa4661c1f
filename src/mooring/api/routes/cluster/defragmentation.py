"""Defragmentation: plans of moves that make capacity usable, and their moves one by one. For admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, named, needs
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.cluster.defragmentation import DefragmentationPlan, DefragmentationRequest, MoveRequest

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 403, 404, 422, 503))

Admin = Annotated[Principal, needs(Action.CHANGE_POOLS)]


@router.post("/{name}/defragmentation", operation_id="plan_defragmentation")
async def plan_defragmentation(
    services: Served, admin: Admin, name: str, request: DefragmentationRequest
) -> DefragmentationPlan:
    """Plan moves of running tasks that make capacity usable, with the gain of each step. Nothing moves."""
    services.rates.query(admin)
    return await services.queries.defragmentation(named("pool", name), request)


@router.post("/{name}/defragmentation/moves", status_code=204, operation_id="move_task", responses=problems(409))
async def move_task(services: Served, admin: Admin, name: str, request: MoveRequest) -> None:
    """Evict a task so that its replacement goes to the target. Refused if the task no longer runs on the source."""
    services.rates.query(admin)
    await services.defragmentation.move(named("pool", name), request, Actor.of(admin))
