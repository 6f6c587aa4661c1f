"""Sessions: a thin translation to and from workloads."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mooring.api.auth.request_access import IdempotencyHeader, Served, Submitter, User
from mooring.api.lookup.listing import RECENTLY, Active, All, Everyone, Limit, Offset, Status, sight_of
from mooring.api.lookup.workloads import detailed, find_workload, listed
from mooring.api.middleware.errors import problems
from mooring.api.middleware.task_costs import charge_tasks
from mooring.api.serializers import workload_view
from mooring.model.tenancy.access import Action
from mooring.model.workloads.workload import Kind
from mooring.store.views.workloads import Order, Selection
from mooring.wire.fields import said
from mooring.wire.workloads.containers import ContainerFields, ContainerRequest
from mooring.wire.workloads.placement import PlacementRequest
from mooring.wire.workloads.sessions import SessionType
from mooring.wire.workloads.workload_fields import CommonFields, SessionRequest
from mooring.wire.workloads.workloads import (
    WorkloadAccepted,
    WorkloadDetail,
    WorkloadList,
    WorkloadRequest,
    WorkloadView,
)

router = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=problems(401, 422, 503))


@router.post("", status_code=202, operation_id="create_session", responses=problems(403, 404, 409, 412))
async def create(
    services: Served,
    principal: Submitter,
    request: SessionRequest,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> WorkloadAccepted:
    """Submit a session. It is durable when the response arrives, and is placed soon after."""
    workload = as_workload(request)
    charge_tasks(services, principal, replicas=workload.replicas, array=workload.array)
    accepted = await services.submissions.submit(principal, workload, key=idempotency_key)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/sessions/{accepted.id}"
    return accepted


@router.get("", operation_id="list_sessions", responses=problems(403))
async def list_sessions(
    services: Served,
    principal: User,
    status: Annotated[list[Status] | None, Query(description="Only these statuses")] = None,
    type: SessionType | None = None,
    all: All = False,
    active: Active = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> WorkloadList:
    """List the caller's sessions, newest first, without removed ones."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        statuses=frozenset(status) if status else None,
        kind=Kind.SESSION,
        type=type,
        ended_since=services.now() if active else None if all else services.now() - RECENTLY,
    )
    return await listed(services, selection, Order(), limit=limit, offset=offset)


@router.get("/{ref}", operation_id="get_session", responses=problems(404))
async def get_session(services: Served, principal: User, ref: str) -> WorkloadDetail:
    """Get a session with its tasks, by id or name."""
    return await detailed(services, principal, await find_workload(services, principal, ref, kind=Kind.SESSION))


@router.delete("/{ref}", status_code=202, operation_id="cancel_session", responses=problems(403, 404, 409))
async def cancel(
    services: Served,
    principal: User,
    ref: str,
    force: Annotated[bool, Query(description="Do not wait for nodes that do not answer")] = False,
) -> WorkloadView:
    """Stop a session and remove it from the list, at once if it has no node yet. Its history is retained."""
    row = await find_workload(services, principal, ref, action=Action.CHANGE_WORK, kind=Kind.SESSION)
    await services.submissions.remove(principal, row.id, force=force)
    return workload_view(await find_workload(services, principal, str(row.id)))


def as_workload(request: SessionRequest) -> WorkloadRequest:
    """Return the equivalent body of `POST /api/workloads`; fields that were not given stay unset."""
    fields = said(request, CommonFields)
    if request.nodes or request.nodes_strictly:
        placement = request.placement or PlacementRequest()
        fields["placement"] = placement.model_copy(
            update={"nodes": request.nodes, "nodes_strictly": request.nodes_strictly}
        )
    return WorkloadRequest(
        **fields,
        name=request.name,
        kind="session",
        type=request.type,
        containers=[ContainerRequest(**said(request, ContainerFields))],
        replicas=request.cluster_size,
        gang=request.cluster_size > 1,
        single_node=request.mode == "single-node",
    )
