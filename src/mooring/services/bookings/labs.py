"""Labs: a workload with a timeslot of its own, which reserves exactly what its tasks request."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.errors import InvalidInput
from mooring.model.resources.task_resources import requests_of
from mooring.services.bookings.windows import duration_or_default, window_of
from mooring.services.submission.volume_mounts import check_settled
from mooring.store.core.ids import new_id
from mooring.store.nodes.pools import Pool
from mooring.store.workloads.mounts import bound
from mooring.store.workloads.new_workloads import NewWorkload
from mooring.wire.workloads.timeslots import LabRequest


def as_lab(request: LabRequest, new: NewWorkload, pool: Pool, at: datetime) -> NewWorkload:
    """Return the workload with the timeslot that is written with it."""
    for name in ("booking", "starts_at", "dependencies"):
        if getattr(request.workload, name):
            raise InvalidInput(f"a lab starts with its booking: leave out {name}", code="invalid-lab")
    if not any(requests_of(new.template).values()):
        raise InvalidInput(
            "the lab requests no resources; give the amounts that its tasks need", code="nothing-to-book"
        )
    check_settled(new.mounts)
    start, end = window_of(request, at)
    slot = Timeslot(
        id=new_id(),
        name=new.name,
        kind=TimeslotKind.LAB,
        pool=pool.name,
        status=TimeslotStatus.REQUESTED,
        starts_at=start,
        ends_at=end,
        lead_seconds=duration_or_default(request.lead, pool.policy.bookings.lead_seconds),
        grace_seconds=duration_or_default(request.grace, pool.policy.bookings.grace_seconds),
        request=requests_of(new.template),
        count=new.replicas,
        constraints=bound(new.constraints, new.mounts),
        architecture=new.template.architecture,
        region=new.region,
        user_id=new.principal.user_id,
        project_id=new.principal.project_id,
        domain_id=new.principal.domain_id,
        access_key=new.principal.access_key,
    )
    return replace(new, timeslot=slot, schedule=replace(new.schedule, booking=slot.id))
