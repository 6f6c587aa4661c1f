"""Query parameters that lists of workloads, timeslots and labs share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BeforeValidator

from mooring.model.errors import NotAllowed
from mooring.model.lifecycle import WorkloadStatus
from mooring.model.tenancy.access import (
    Sight,
    own_work,
    sight,
)
from mooring.model.tenancy.tenants import Principal
from mooring.wire.fields import INT32_MAX

All = Annotated[bool, Query(description="Include those that ended more than an hour ago")]
Active = Annotated[bool, Query(description="Only those that have not ended")]
Everyone = Annotated[bool, Query(description="Include those of other users (admins)")]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=INT32_MAX)]
Status = Annotated[WorkloadStatus, BeforeValidator(lambda text: text.upper() if isinstance(text, str) else text)]


# What ended earlier than this is not listed unless all is asked for.
RECENTLY = timedelta(hours=1)


def sight_of(principal: Principal, *, everyone: bool) -> Sight:
    """Return the scope of a list: the principal's own work, or that of everyone whose work it may see."""
    seen = sight(principal)
    if everyone and not seen.of_others:
        raise NotAllowed("you may see only your own workloads; leave out everyone")
    return seen if everyone else own_work(principal)
