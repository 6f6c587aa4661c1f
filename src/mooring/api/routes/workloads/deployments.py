"""Rollouts of deployments: update, rollback, pause, resume, and revisions."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, User
from mooring.api.lookup.workloads import find_workload
from mooring.api.middleware.errors import problems
from mooring.api.middleware.task_costs import charge_tasks
from mooring.api.serializers import workload_view
from mooring.api.services import Services
from mooring.model.resources.slots import format_amounts
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.workload import Kind
from mooring.store.workloads import revisions, templates
from mooring.wire.workloads.rollouts import (
    RevisionList,
    RevisionView,
    RollbackRequest,
    UpdateRequest,
)
from mooring.wire.workloads.workloads import WorkloadView

router = APIRouter(prefix="/api/deployments", tags=["deployments"], responses=problems(401, 422, 503))


@router.post("/{ref}/update", status_code=202, operation_id="update_deployment", responses=problems(403, 404, 409, 412))
async def update(services: Served, principal: User, ref: str, request: UpdateRequest) -> WorkloadView:
    """Update the template of a deployment. Its tasks are replaced step by step."""
    id = await _changed(services, principal, ref, replicas=request.replicas or 0)
    await services.deployments.update(principal, id, request)
    return await _view(services, principal, id)


@router.post(
    "/{ref}/rollback",
    status_code=202,
    operation_id="roll_back_deployment",
    responses=problems(403, 404, 409, 412),
)
async def roll_back(services: Served, principal: User, ref: str, request: RollbackRequest) -> WorkloadView:
    """Roll back to the template of an earlier revision, which becomes a new revision."""
    id = await _changed(services, principal, ref, replicas=0)
    await services.deployments.roll_back(principal, id, request.revision)
    return await _view(services, principal, id)


@router.post("/{ref}/pause", status_code=202, operation_id="pause_deployment", responses=problems(403, 404, 409))
async def pause(services: Served, principal: User, ref: str) -> WorkloadView:
    """Pause the rollout of a deployment until it is resumed."""
    id = await _changed(services, principal, ref)
    await services.deployments.pause(principal, id)
    return await _view(services, principal, id)


@router.post("/{ref}/resume", status_code=202, operation_id="resume_deployment", responses=problems(403, 404, 409))
async def resume(services: Served, principal: User, ref: str) -> WorkloadView:
    """Resume a paused or stalled rollout."""
    id = await _changed(services, principal, ref)
    await services.deployments.resume(principal, id)
    return await _view(services, principal, id)


@router.get("/{ref}/revisions", operation_id="list_deployment_revisions", responses=problems(404))
async def list_revisions(services: Served, principal: User, ref: str) -> RevisionList:
    """List the revisions of a deployment, oldest first."""
    row = await find_workload(services, principal, ref, kind=Kind.DEPLOYMENT)
    async with services.database.read() as connection:
        found = await revisions.of_workload(connection, row.id)
    return RevisionList(
        revisions=[
            RevisionView(
                number=each.number,
                cause=each.cause,
                images=templates.decode(each.template).images,
                resources=format_amounts(each.requested_slots),
                created_by=each.created_by,
                created_at=each.created_at,
                present=each.number == row.revision,
            )
            for each in found
        ]
    )


async def _changed(services: Services, principal: Principal, ref: str, *, replicas: int | None = None) -> UUID:
    """Return the id of a deployment that the principal may change; `replicas`: those of its new revision."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK, kind=Kind.DEPLOYMENT)
    if replicas is not None:
        # All pending tasks are replaced in the same transaction.
        charge_tasks(services, principal, replicas=max(row.replicas, replicas))
    return row.id


async def _view(services: Services, principal: Principal, id: UUID) -> WorkloadView:
    return workload_view(await find_workload(services, principal, str(id)))
