"""Timeslots by id or name, for a principal who may see them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from mooring.api.auth.request_access import (
    as_id,
    is_name,
    needs,
)
from mooring.api.services import Services
from mooring.model.calendar.timeslots import TimeslotKind
from mooring.model.tenancy.access import (
    Action,
    may,
    not_there,
    require,
)
from mooring.model.tenancy.tenants import Principal
from mooring.store.views import timeslots as views
from mooring.store.views.timeslots import TimeslotRow
from mooring.wire.workloads.sessions import Instant

Booker = Annotated[Principal, needs(Action.BOOK)]
Since = Annotated[Instant | None, Query(alias="from", description="Only those that end after this time")]
Until = Annotated[Instant | None, Query(description="Only those that begin before this time")]


async def find_timeslot(
    services: Services, principal: Principal, ref: str, *, action: Action = Action.SEE_BOOKING
) -> TimeslotRow:
    """Return the timeslot of this id or name if the principal may do this to it."""
    found: TimeslotRow | None = None
    timeslot_id = as_id(ref)
    async with services.database.read() as connection:
        if timeslot_id is not None:
            found = await views.by_id(connection, timeslot_id)
        elif is_name(ref):
            found = await views.by_name(connection, ref, principal)
    if found is None:
        raise not_there(f"booking {ref[:63]!r}")
    require_timeslot_visible(principal, found, ref)
    if action is not Action.SEE_BOOKING:
        maintenance = found.slot.kind is TimeslotKind.MAINTENANCE
        require(principal, Action.MAINTAIN if maintenance else action, found.target)
    return found


def require_timeslot_visible(principal: Principal, row: TimeslotRow, ref: str) -> None:
    if not is_timeslot_visible(principal, row):
        raise not_there(f"booking {ref[:63]!r}")


def is_timeslot_visible(principal: Principal, row: TimeslotRow) -> bool:
    """Return whether the principal may see or use the timeslot; maintenance is visible to all users."""
    slot = row.slot
    has_access = principal.user_id in slot.users or not slot.projects.isdisjoint(principal.projects)
    return has_access or slot.kind is TimeslotKind.MAINTENANCE or may(principal, Action.SEE_BOOKING, row.target)
