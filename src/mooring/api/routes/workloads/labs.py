"""Labs: workloads with a booking of their own."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response

from mooring.api.auth.request_access import IdempotencyHeader, Served, User
from mooring.api.lookup.listing import RECENTLY, All, Everyone, Limit, Offset, sight_of
from mooring.api.lookup.timeslots import Booker, Since, Until, find_timeslot
from mooring.api.middleware.errors import problems
from mooring.api.middleware.task_costs import charge_tasks
from mooring.api.serializers import timeslot_view, workload_view
from mooring.api.services import Services
from mooring.model.calendar.timeslots import TimeslotKind
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.tenancy.access import Action, not_there
from mooring.model.tenancy.tenants import Principal
from mooring.model.workloads.lifetime.labs import lab_state
from mooring.store.views import timeslots as views
from mooring.store.views import workloads as workload_views
from mooring.store.views.timeslots import Selection, TimeslotRow
from mooring.wire.workloads.timeslots import (
    LabAccepted,
    LabList,
    LabRequest,
    LabView,
    TimeslotsCancelled,
)

router = APIRouter(prefix="/api/labs", tags=["timeslots"], responses=problems(401, 422, 503))


@router.post("", status_code=202, operation_id="create_lab", responses=problems(403, 404, 409, 412))
async def create(
    services: Served,
    principal: Booker,
    request: LabRequest,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> LabAccepted:
    """Submit a workload for a window of time and book its capacity, atomically."""
    charge_tasks(services, principal, replicas=request.workload.replicas, array=request.workload.array)
    accepted = await services.submissions.submit_lab(principal, request, key=idempotency_key)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/labs/{accepted.timeslot}"
    return accepted


@router.get("", operation_id="list_labs", responses=problems(403))
async def list_labs(
    services: Served,
    principal: User,
    since: Since = None,
    until: Until = None,
    all: All = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> LabList:
    """List the caller's labs by start."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        maintenance=False,
        kind=TimeslotKind.LAB,
        since=since,
        until=until,
        ended_since=None if all or since else services.now() - RECENTLY,
    )
    async with services.database.read() as connection:
        rows, total = await views.page(connection, selection, limit=limit, offset=offset)
    return LabList(labs=await _labs(services, rows), total=total, limit=limit, offset=offset)


@router.get("/{ref}", operation_id="get_lab", responses=problems(404))
async def get_lab(services: Served, principal: User, ref: str) -> LabView:
    """Get a lab, by name or by the id of its booking, with the ports of its tasks."""
    shown = await _labs(services, [await _find(services, principal, ref)])
    if not shown:
        raise not_there(f"lab {ref[:63]!r}")
    return shown[0]


@router.delete("/{ref}", status_code=202, operation_id="cancel_lab", responses=problems(403, 404, 409))
async def cancel(services: Served, principal: User, ref: str) -> TimeslotsCancelled:
    """Cancel the lab and release its capacity."""
    row = await _find(services, principal, ref, action=Action.CHANGE_BOOKING)
    return TimeslotsCancelled(cancelled=await services.bookings.cancel(principal, row.slot.id))


async def _find(
    services: Services, principal: Principal, ref: str, *, action: Action = Action.SEE_BOOKING
) -> TimeslotRow:
    row = await find_timeslot(services, principal, ref, action=action)
    if row.slot.kind is not TimeslotKind.LAB:
        raise not_there(f"lab {ref[:63]!r}")
    return row


async def _labs(services: Services, rows: Sequence[TimeslotRow]) -> list[LabView]:
    """Return the labs with their workloads; labs whose workload was purged are left out."""
    async with services.database.read() as connection:
        found = await workload_views.by_timeslot(connection, [row.slot.id for row in rows])
        ports = await workload_views.ports_of(connection, [workload.id for workload in found.values()])
    at = services.now()
    return [
        LabView(
            state=lab_state(
                row.slot, WorkloadStatus(workload.status), at, removed=workload.removed_at is not None
            ).value,
            timeslot=timeslot_view(row),
            workload=workload_view(workload),
            ports=ports.get(workload.id, {}),
        )
        for row in rows
        if (workload := found.get(row.slot.id)) is not None
    ]
