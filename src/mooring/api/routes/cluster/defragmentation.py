"""Defragmentation: plans of moves that make capacity usable, and their moves one by one. For admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, named, needs
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import Action, not_there
from mooring.model.tenancy.tenants import Principal
from mooring.store.nodes import defragmentation_plans, pools
from mooring.store.nodes.defragmentation_plans import StoredPlan
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.cluster.defragmentation import (
    AutomaticMoveView,
    AutomaticPlanList,
    AutomaticPlanView,
    DefragmentationPlan,
    DefragmentationRequest,
    MoveRequest,
)

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 403, 404, 422, 503))

Admin = Annotated[Principal, needs(Action.CHANGE_POOLS)]


_MOST_PLANS = 20


@router.get("/{name}/defragmentation", operation_id="list_automatic_plans")
async def list_automatic_plans(services: Served, _admin: Admin, name: str) -> AutomaticPlanList:
    """List the newest plans of automatic defragmentation with their moves, the newest first."""
    async with services.database.read() as connection:
        if await pools.by_name(connection, named("pool", name)) is None:
            raise not_there(f"pool {name!r}")
        found = await defragmentation_plans.newest(connection, name, _MOST_PLANS)
    return AutomaticPlanList(plans=[_view(plan) for plan in found])


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


def _view(plan: StoredPlan) -> AutomaticPlanView:
    return AutomaticPlanView.model_validate(
        {
            "id": plan.id,
            "status": plan.status.value,
            "gain": plan.gain,
            "gained": round(plan.gained, 3),
            "bound": plan.bound,
            "bound_reason": plan.bound_reason,
            "reason": plan.reason,
            "created_at": plan.created_at,
            "ended_at": plan.ended_at,
            "moves": [
                AutomaticMoveView(
                    number=move.number,
                    status=move.status.value,
                    workload_id=move.workload_id,
                    workload=move.workload,
                    task_id=move.task_id,
                    replacement_id=move.replacement_id,
                    source=move.source,
                    target=move.target,
                    lost_seconds=move.lost_seconds,
                    reason=move.reason,
                    evicted_at=move.evicted_at,
                    ended_at=move.ended_at,
                )
                for move in plan.moves
            ],
        }
    )
