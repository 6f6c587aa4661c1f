"""Timeslots: book, look, wait for the answer, change, cancel; as a calendar; and nodes for maintenance."""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator

from mooring.api.access import IdempotencyHeader, Served, User, as_id, is_name, needs
from mooring.api.boundary import only_waits
from mooring.api.calendar import calendar_of
from mooring.api.errors import problems
from mooring.api.services import Services
from mooring.api.workloads import RECENTLY, All, Everyone, Limit, Offset, sight_of
from mooring.model.access import Action, may, not_there, require
from mooring.model.errors import NotFound
from mooring.model.slots import format_amounts
from mooring.model.tenants import Principal
from mooring.model.timeslots import OVER, TimeslotKind, TimeslotStatus
from mooring.store.views import timeslots as views
from mooring.store.views.timeslots import Selection, TimeslotRow
from mooring.wire.fields import INT32_MAX, Name
from mooring.wire.sessions import Instant
from mooring.wire.timeslots import (
    MaintenanceRequest,
    TimeslotChange,
    TimeslotList,
    TimeslotPlace,
    TimeslotRequest,
    TimeslotsAccepted,
    TimeslotsCancelled,
    TimeslotView,
)

router = APIRouter(prefix="/api", tags=["timeslots"], responses=problems(401, 422, 503))

Booker = Annotated[Principal, needs(Action.BOOK)]
Operator = Annotated[Principal, needs(Action.MAINTAIN)]
Status = Annotated[TimeslotStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]
Since = Annotated[Instant | None, Query(alias="from", description="Those that end later")]
Until = Annotated[Instant | None, Query(description="Those that begin earlier")]
_LONGEST_WAIT_SECONDS = 300.0
_MOST_IN_A_CALENDAR = 10_000


@router.post("/timeslots", status_code=202, operation_id="book", responses=problems(400, 403, 404, 409, 412, 413))
async def book(
    services: Served,
    principal: Booker,
    request: TimeslotRequest,
    response: Response,
    idempotency_key: IdempotencyHeader = None,
) -> TimeslotsAccepted:
    """Ask for room in a window of time, once or by a rule. Whether it is kept is decided soon: wait for the answer."""
    accepted = await services.bookings.book(principal, request, key=idempotency_key)
    response.headers["Location"] = f"{services.public_url.rstrip('/')}/api/timeslots/{accepted.ids[0]}"
    return accepted


@router.get("/timeslots", operation_id="list_timeslots", responses=problems(403))
async def list_timeslots(
    services: Served,
    principal: User,
    since: Since = None,
    until: Until = None,
    status: Annotated[list[Status] | None, Query(description="Any of these")] = None,
    kind: TimeslotKind | None = None,
    pool: Name | None = None,
    series: UUID | None = None,
    all: All = False,
    everyone: Everyone = False,
    limit: Limit = 100,
    offset: Offset = 0,
) -> TimeslotList:
    """By their start: one's own, those that one may use, and what operators take for maintenance."""
    selection = Selection(
        sight=sight_of(principal, everyone=everyone),
        guest=principal,
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
    responses={200: {"description": "A calendar", "content": {"text/calendar": {"schema": {"type": "string"}}}}},
)
async def export(
    services: Served, principal: User, since: Since = None, until: Until = None, pool: Name | None = None
) -> Response:
    """One's own timeslots, and those that one may use, as an iCalendar file; those that are over are left out."""
    selection = Selection(
        sight=sight_of(principal, everyone=False),
        guest=principal,
        maintenance=False,
        statuses=frozenset(TimeslotStatus) - OVER,
        pool=pool,
        since=since,
        until=until,
    )
    async with services.database.read() as connection:
        rows, _ = await views.page(connection, selection, limit=_MOST_IN_A_CALENDAR, offset=0)
    return Response(calendar_of(rows), media_type="text/calendar; charset=utf-8")


@router.get("/timeslots/{ref}", operation_id="get_timeslot", responses=problems(404))
async def get_timeslot(services: Served, principal: User, ref: str) -> TimeslotView:
    """One by its id or name; of several with the same name the one that is in force, or comes next."""
    return timeslot_view(await find_timeslot(services, principal, ref))


@router.get("/timeslots/{ref}/wait", operation_id="wait_for_timeslot", responses=problems(404))
async def wait(
    services: Served,
    principal: User,
    request: Request,
    ref: str,
    version: Annotated[
        int | None, Query(ge=0, le=INT32_MAX, description="Until it differs from this one; else until it is decided")
    ] = None,
    timeout: Annotated[float, Query(ge=0, le=_LONGEST_WAIT_SECONDS, allow_inf_nan=False)] = 25.0,
) -> TimeslotView:
    """The timeslot as soon as it is decided, or has changed, or when the seconds are over."""
    row = await find_timeslot(services, principal, ref)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        # Counted before it looks: what is committed while it looks must not be slept through.
        count = services.changes.count
        async with services.database.read() as connection:
            seen = await views.version_and_status(connection, row.slot.id)
        if seen is None:
            raise NotFound(f"timeslot {row.slot.name!r} was purged meanwhile")
        has_come = seen[0] != version if version is not None else seen[1] != TimeslotStatus.REQUESTED
        left = deadline - loop.time()
        if has_come or left <= 0 or services.feed.closed:
            return timeslot_view(await find_timeslot(services, principal, str(row.slot.id)))
        only_waits(request.scope)
        await services.changes.wait(left, count)


@router.patch(
    "/timeslots/{ref}",
    status_code=202,
    operation_id="change_timeslot",
    responses=problems(400, 403, 404, 409, 412, 413),
)
async def change(services: Served, principal: User, ref: str, request: TimeslotChange) -> TimeslotView:
    """Change the window or the size. An earlier end holds at once; all else is asked for anew, as a timeslot that takes
    the place of this one when it is confirmed. Until then, and if it is refused, this one stays as it is."""
    row = await find_timeslot(services, principal, ref, action=Action.CHANGE_BOOKING)
    changed = await services.bookings.change(principal, row.slot.id, request)
    return timeslot_view(await find_timeslot(services, principal, str(changed)))


@router.delete("/timeslots/{ref}", status_code=202, operation_id="cancel_timeslot", responses=problems(403, 404, 409))
async def cancel(
    services: Served,
    principal: User,
    ref: str,
    series: Annotated[bool, Query(description="All of its series that are not over")] = False,
) -> TimeslotsCancelled:
    """Give the room back; what runs in it is stopped."""
    row = await find_timeslot(services, principal, ref, action=Action.CHANGE_BOOKING)
    return TimeslotsCancelled(cancelled=await services.bookings.cancel(principal, row.slot.id, series=series))


@router.post("/maintenance", status_code=201, operation_id="create_maintenance", responses=problems(400, 403, 404, 413))
async def maintain(services: Served, operator: Operator, request: MaintenanceRequest) -> list[TimeslotView]:
    """Take nodes for a window: nothing starts there that would overlap it, and bookings there are moved elsewhere."""
    made = await services.bookings.maintain(operator, request)
    return [timeslot_view(await find_timeslot(services, operator, str(id))) for id in made]


async def find_timeslot(
    services: Services, principal: Principal, ref: str, *, action: Action = Action.SEE_BOOKING
) -> TimeslotRow:
    """The timeslot that an id or a name means to this user, to do this to it."""
    found: TimeslotRow | None = None
    timeslot_id = as_id(ref)
    async with services.database.read() as connection:
        if timeslot_id is not None:
            found = await views.by_id(connection, timeslot_id)
        elif is_name(ref):
            found = await views.by_name(connection, ref, principal)
    if found is None or not _is_seen(principal, found):
        raise not_there(f"timeslot {ref[:63]!r}")
    if action is not Action.SEE_BOOKING:
        maintenance = found.slot.kind is TimeslotKind.MAINTENANCE
        require(principal, Action.MAINTAIN if maintenance else action, found.target)
    return found


def _is_seen(principal: Principal, row: TimeslotRow) -> bool:
    """By whoever may see the work of its booker or use it; what operators take concerns everybody."""
    slot = row.slot
    guest = principal.user_id in slot.users or not slot.projects.isdisjoint(principal.projects)
    return guest or slot.kind is TimeslotKind.MAINTENANCE or may(principal, Action.SEE_BOOKING, row.target)


def timeslot_view(row: TimeslotRow) -> TimeslotView:
    slot = row.slot
    return TimeslotView(
        id=slot.id,
        name=slot.name,
        kind=slot.kind.value,
        purpose=slot.purpose,
        pool=slot.pool,
        project=row.project,
        user=row.user,
        status=slot.status.value,
        reason=None if row.reason is None else dict(row.reason),
        start=slot.starts_at,
        end=slot.ends_at,
        lead_seconds=slot.lead_seconds,
        grace_seconds=slot.grace_seconds,
        eligible_at=slot.eligible_at,
        resources=format_amounts(slot.request),
        count=slot.count,
        architecture=slot.architecture,
        region=slot.region,
        users=list(row.users),
        projects=list(row.projects),
        release_after_seconds=slot.release_after_seconds,
        places=[TimeslotPlace(node=node, tasks=number) for node, number in row.places],
        series=slot.series_id,
        rule=row.rule,
        timezone=row.timezone,
        replaces=slot.replaces,
        created_at=row.created_at,
        ended_at=row.ended_at,
        version=slot.version,
    )
