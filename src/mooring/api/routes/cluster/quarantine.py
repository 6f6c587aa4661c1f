"""Quarantine: tasks that run on nodes and that the database does not know, for admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.api.services import Services
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.store.nodes import quarantine
from mooring.wire.cluster.quarantine import QuarantinedTask, QuarantineEnd, QuarantineList

router = APIRouter(prefix="/api/quarantine", tags=["nodes"], responses=problems(401, 403, 503))


@router.get("", operation_id="list_quarantine")
async def list_quarantine(
    services: Served, _reader: Annotated[Principal, needs(Action.SEE_QUARANTINE)]
) -> QuarantineList:
    """List tasks that run on nodes unknown to the database, as after a restore. Their nodes take no new tasks."""
    return await _list(services)


@router.post("/end", operation_id="end_quarantined", responses=problems(404, 422))
async def end_quarantined(
    services: Served, admin: Annotated[Principal, needs(Action.END_QUARANTINED)], request: QuarantineEnd
) -> QuarantineList:
    """End quarantined tasks: one, those of a node, or all. Each leaves the list once it is gone from its node."""
    await services.nodes.end_quarantined(admin, request)
    return await _list(services)


async def _list(services: Services) -> QuarantineList:
    async with services.database.read() as connection:
        found = await quarantine.all_tasks(connection)
    return QuarantineList(
        tasks=[
            QuarantinedTask(
                node=task.node,
                task_id=task.task_id,
                workload_name=task.workload_name,
                seen_at=task.seen_at,
                ends_at=task.ends_at,
                confirmed_by=task.confirmed_by,
            )
            for task in found
        ]
    )
