"""Work inside a timeslot: who may name which, and what could never have its room there."""

from __future__ import annotations

from mooring.intake.circumstances import Circumstances
from mooring.model.access import not_there
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.resources import requests_of
from mooring.model.slots import slot_type
from mooring.model.timeslots import OVER, Timeslot, TimeslotKind
from mooring.store.workloads import NewWorkload
from mooring.wire.api import WorkloadRequest


def booking_of(request: WorkloadRequest, circumstances: Circumstances) -> Timeslot | None:
    """The timeslot that a request names, which its booker, its guests and admins may."""
    if request.booking is None:
        return None
    slot = circumstances.bookings.get(request.booking)
    if slot is None:
        raise not_there(f"timeslot {request.booking!r} that you may use")
    if slot.kind is not TimeslotKind.BOOKING:
        whose = "its own workload" if slot.kind is TimeslotKind.LAB else "an operator"
        raise InvalidInput(f"the {slot.kind} {slot.name!r} is for {whose} alone", code="timeslot-not-shared")
    if slot.status in OVER:
        raise Conflict(f"timeslot {slot.name!r} is {slot.status}", code="timeslot-over")
    if request.pool not in (None, slot.pool):
        raise InvalidInput(
            f"timeslot {slot.name!r} is in pool {slot.pool!r}: leave out the pool", code="timeslot-elsewhere"
        )
    if request.starts_at is not None and request.starts_at >= slot.ends_at:
        raise InvalidInput(
            f"it is to start when timeslot {slot.name!r} is over, at {slot.ends_at.isoformat(timespec='seconds')}",
            code="invalid-start",
        )
    return slot


def check_fits(new: NewWorkload, slot: Timeslot) -> None:
    """InvalidInput for a task that is larger than all that the timeslot keeps together."""
    for name, amount in requests_of(new.template).items():
        kept = slot.request.get(name, 0) * slot.count
        if amount > kept:
            write = slot_type(name).format
            raise InvalidInput(
                f"timeslot {slot.name!r} keeps {write(kept)} {name} in all, and one task asks for {write(amount)}",
                code="larger-than-timeslot",
                details={"slot": name, "kept": kept, "requested": amount},
            )
