"""Labs: a workload with a timeslot of its own, which keeps exactly what its tasks ask for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from mooring.intake.mounting import check_settled
from mooring.intake.windows import kept_seconds, window_of
from mooring.model.errors import InvalidInput
from mooring.model.resources import requests_of
from mooring.model.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.store.ids import new_id
from mooring.store.mounts import bound
from mooring.store.pools import Pool
from mooring.store.workloads import NewWorkload
from mooring.wire.timeslots import LabRequest


def as_lab(request: LabRequest, new: NewWorkload, pool: Pool, at: datetime) -> NewWorkload:
    """The workload with the timeslot that is written with it."""
    for name in ("booking", "starts_at", "dependencies"):
        if getattr(request.workload, name):
            raise InvalidInput(
                f"a lab has a timeslot of its own, which says when it starts: leave out {name}", code="invalid-lab"
            )
    if not any(requests_of(new.template).values()):
        raise InvalidInput("a timeslot of nothing keeps nothing: say what its tasks need", code="nothing-to-book")
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
        lead_seconds=kept_seconds(request.lead, pool.policy.bookings.lead_seconds),
        grace_seconds=kept_seconds(request.grace, pool.policy.bookings.grace_seconds),
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
    return replace(new, timeslot=slot, terms=replace(new.terms, booking=slot.id))
