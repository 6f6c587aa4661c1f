"""Bookings: create, list, wait for the decision, change, cancel and export; and maintenance of nodes."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator

from mooring.api.auth.request_access import (
    IdempotencyHeader,
    LoggedIn,
    Served,
    User,
    needs,
)
from mooring.api.calendar_feed import calendar_of
from mooring.api.lookup.listing import RECENTLY, All, Everyone, Limit, Offset, sight_of
from mooring.api.lookup.timeslots import Booker, Since, Until, find_timeslot, require_timeslot_visible
from mooring.api.middleware.errors import problems
from mooring.api.serializers import timeslot_view
from mooring.api.streams.long_polls import watch
from mooring.concurrency.workers import off_loop
from mooring.model.calendar.timeslots import OVER, TimeslotKind, TimeslotStatus
from mooring.model.errors import NotFound
from mooring.model.tenancy.access import (
    Action,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.views import timeslots as views
from mooring.store.views.timeslots import Selection
from mooring.wire.fields import INT32_MAX, Name
from mooring.wire.workloads.timeslots import (
    MaintenanceRequest,
    TimeslotChange,
    TimeslotList,
    TimeslotRequest,
    TimeslotsAccepted,
    TimeslotsCancelled,
    TimeslotView,
)

router = APIRouter(prefix="/api", tags=["timeslots"], responses=problems(401, 422, 503))

Operator = Annotated[Principal, needs(Action.MAINTAIN)]
Status = Annotated[TimeslotStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]
_MAX_WAIT_SECONDS = 300.0
_MAX_CALENDAR_EVENTS = 10_000
_TOTAL_COUNT = {"description": "Bookings in all; a calendar has at most 10,000", "schema": {"type": "integer"}}
_CALENDAR: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A calendar",
        "content": {"text/calendar": {"schema": {"type": "string"}}},
        "headers": {"X-Total-Count": _TOTAL_COUNT},
    }
}


@router.post("/timeslots", status_code=202, operation_id="book", responses=problems(403, 404, 409, 412))
async def book(
    services: Served,
    principal: Booker,
    request: TimeslotRequest,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> TimeslotsAccepted:
    """Book capacity for a window of time, once or by a recurrence rule. The scheduler decides soon; wait for it."""
    accepted = await services.bookings.book(principal, request, key=idempotency_key)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/timeslots/{accepted.ids[0]}"
    return accepted


@router.get("/timeslots", operation_id="list_timeslots", responses=problems(403))
async def list_timeslots(
    services: Served,
    principal: User,
    since: Since = None,
    until: Until = None,
    status: Annotated[list[Status] | None, Query(description="Only these statuses")] = None,
    kind: TimeslotKind | None = None,
    pool: Name | None = None,
    series: UUID | None = None,
    all: All = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> TimeslotList:
    """List bookings by start: the caller's, those that the caller may use, and maintenance."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        reservation_user=principal,
        statuses=frozenset(status) if status else None,
        kind=kind,
        pool=pool,
        series_id=series,
        since=since,
        until=until,
        ended_since=None if all or since or status else services.now() - RECENTLY,
    )
    async with services.database.read() as connection:
        rows, total = await views.page(connection, selection, limit=limit, offset=offset)
    return TimeslotList(timeslots=[timeslot_view(row) for row in rows], total=total, limit=limit, offset=offset)


@router.get(
    "/timeslots.ics",
    operation_id="export_timeslots",
    response_class=Response,
    responses=_CALENDAR,
)
async def export(
    services: Served, principal: User, since: Since = None, until: Until = None, pool: Name | None = None
) -> Response:
    """Get the caller's bookings, and those that the caller may use, as an iCalendar file, without past ones.

    At most 10,000, by start; `X-Total-Count` counts all, and the description of an incomplete calendar says so.
    """
    selection = Selection(
        sight=sight_of(principal, everyone=False),
        reservation_user=principal,
        maintenance=False,
        statuses=frozenset(TimeslotStatus) - OVER,
        pool=pool,
        since=since,
        until=until,
    )
    services.rates.query(principal)
    async with services.database.snapshot() as connection:
        rows, total = await views.page(connection, selection, limit=_MAX_CALENDAR_EVENTS, offset=0)
    return Response(
        await off_loop(calendar_of, rows, total),
        media_type="text/calendar; charset=utf-8",
        headers={"X-Total-Count": str(total)},
    )


@router.get("/timeslots/{ref}", operation_id="get_timeslot", responses=problems(404))
async def get_timeslot(services: Served, principal: User, ref: str) -> TimeslotView:
    """Get a booking by id or name; of several with the same name, the current or next one."""
    return timeslot_view(await find_timeslot(services, principal, ref))


@router.get("/timeslots/{ref}/wait", operation_id="wait_for_timeslot", responses=problems(404))
async def wait(
    services: Served,
    login: LoggedIn,
    request: Request,
    ref: str,
    version: Annotated[
        int | None,
        Query(
            ge=0,
            le=INT32_MAX,
            description="Wait until the version differs from this one (default: until it is decided)",
        ),
    ] = None,
    timeout: Annotated[float, Query(ge=0, le=_MAX_WAIT_SECONDS, allow_inf_nan=False)] = 25.0,
) -> TimeslotView:
    """Wait until a booking is decided or changes, or the timeout expires; return it."""
    principal = login.principal
    row = await find_timeslot(services, principal, ref)
    polling = watch(
        services, request.scope, login, row.slot.id, timeout, lambda now: require_timeslot_visible(now, row, ref)
    )
    async with aclosing(polling) as looking:
        async for last in looking:
            async with services.database.read() as connection:
                seen = await views.version_and_status(connection, row.slot.id)
            if seen is None:
                raise NotFound(f"booking {row.slot.name!r} has been purged")
            has_come = seen[0] != version if version is not None else seen[1] != TimeslotStatus.REQUESTED
            if last or has_come:
                break
    return timeslot_view(await find_timeslot(services, principal, str(row.slot.id)))


@router.patch(
    "/timeslots/{ref}",
    status_code=202,
    operation_id="change_timeslot",
    responses=problems(403, 404, 409, 412),
)
async def change(services: Served, principal: User, ref: str, request: TimeslotChange) -> TimeslotView:
    """Change the window or the size of a booking. An earlier end takes effect at once.

    Any other change is a new request, which replaces this booking when it is confirmed. Until then, and if it is
    declined, this one stays as it is.
    """
    row = await find_timeslot(services, principal, ref, action=Action.CHANGE_BOOKING)
    changed = await services.bookings.change(principal, row.slot.id, request)
    return timeslot_view(await find_timeslot(services, principal, str(changed)))


@router.delete("/timeslots/{ref}", status_code=202, operation_id="cancel_timeslot", responses=problems(403, 404, 409))
async def cancel(
    services: Served,
    principal: User,
    ref: str,
    series: Annotated[bool, Query(description="Cancel all bookings of its series that have not ended")] = False,
) -> TimeslotsCancelled:
    """Cancel a booking and release its capacity. Work that runs in it is stopped."""
    row = await find_timeslot(services, principal, ref, action=Action.CHANGE_BOOKING)
    return TimeslotsCancelled(cancelled=await services.bookings.cancel(principal, row.slot.id, series=series))


@router.post("/maintenance", status_code=201, operation_id="create_maintenance", responses=problems(403, 404))
async def maintain(services: Served, operator: Operator, request: MaintenanceRequest) -> list[TimeslotView]:
    """Reserve nodes for maintenance. No work that would overlap starts there, and bookings are moved elsewhere."""
    made = await services.bookings.maintain(operator, request)
    return [timeslot_view(await find_timeslot(services, operator, str(id))) for id in made]
