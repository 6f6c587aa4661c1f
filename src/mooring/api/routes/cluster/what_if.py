"""Hypothetical questions about the live cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request

from mooring.api.auth.request_access import Served, needs
from mooring.api.lookup.listing import sight_of
from mooring.api.lookup.workloads import find_workload
from mooring.api.middleware.errors import problems
from mooring.api.middleware.outermost import release_seat
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.wire.cluster.what_if import WhatIfAnswer, WhatIfRequest

router = APIRouter(prefix="/api", tags=["timeline"], responses=problems(401, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]


@router.post("/what-if", operation_id="what_if", responses=problems(403, 404))
async def what_if(services: Served, principal: Reader, request: WhatIfRequest, http: Request) -> WhatIfAnswer:
    """Simulate hypothetical changes of the cluster: when pending work would start with and without them.

    Nothing changes. Every user may ask about additional nodes and about the end of their own workloads, admins about
    all else.
    """
    services.rates.query(principal)
    sight_of(principal, everyone=request.everyone)
    cancel = [(await find_workload(services, principal, ref, action=Action.CHANGE_WORK)).id for ref in request.cancel]
    shown = [(await find_workload(services, principal, ref)).id for ref in request.workloads]
    # The answer comes from another process and may take long; the seat is free for others meanwhile.
    release_seat(http.scope)
    return await services.what_if.ask(principal, request, cancel, shown)
