"""Access of workloads to timeslots, and checks that they fit."""

from __future__ import annotations

from mooring.model.calendar.timeslots import OVER, Timeslot, TimeslotKind
from mooring.model.errors import Conflict, InvalidInput
from mooring.model.resources.slots import slot_type
from mooring.model.resources.task_resources import requests_of
from mooring.model.tenancy.access import not_there
from mooring.services.submission.submission_context import SubmissionContext
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.workloads import WorkloadRequest


def booking_of(request: WorkloadRequest, context: SubmissionContext) -> Timeslot | None:
    """Return the timeslot that a request names, if its principal may use it: as booker, guest or admin."""
    if request.booking is None:
        return None
    slot = context.bookings.get(request.booking)
    if slot is None:
        raise not_there(f"booking {request.booking!r} that you may use")
    if slot.kind is not TimeslotKind.BOOKING:
        subject = "its own workload" if slot.kind is TimeslotKind.LAB else "an operator"
        raise InvalidInput(f"the {slot.kind} {slot.name!r} is reserved for {subject}", code="timeslot-not-shared")
    if slot.status in OVER:
        raise Conflict(f"booking {slot.name!r} is {slot.status}", code="timeslot-over")
    if request.pool not in (None, slot.pool):
        raise InvalidInput(
            f"booking {slot.name!r} is in pool {slot.pool!r}: leave out the pool", code="timeslot-elsewhere"
        )
    if request.starts_at is not None and request.starts_at >= slot.ends_at:
        raise InvalidInput(
            f"the start is after the end of booking {slot.name!r}, {slot.ends_at.isoformat(timespec='seconds')}",
            code="invalid-start",
        )
    return slot


def check_fits(new: NewWorkload, slot: Timeslot) -> None:
    """Raise InvalidInput for a task that is larger than the whole timeslot."""
    for name, amount in requests_of(new.template).items():
        reserved = slot.request.get(name, 0) * slot.count
        if amount > reserved:
            write = slot_type(name).format
            raise InvalidInput(
                f"booking {slot.name!r} reserves {write(reserved)} {name} in total, and one task requests"
                f" {write(amount)}",
                code="larger-than-timeslot",
                details={"slot": name, "kept": reserved, "requested": amount},
            )
