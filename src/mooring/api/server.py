"""The server itself: is it alive, can it work, what has it counted, do its books agree."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response

from mooring.api.access import Served, needs
from mooring.api.errors import problems
from mooring.model.access import Action
from mooring.model.tenants import Principal
from mooring.wire.api import AuditReport, Health, Ready

router = APIRouter(tags=["server"], responses=problems())

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health", operation_id="health")
async def health(services: Served) -> Health:
    """Answers while the process lives, whatever else is wrong."""
    state = services.state
    return Health(
        status="ok",
        role=state.role,
        version=services.version,
        last_pass_at=state.last_pass_at,
        last_pass_ms=state.last_pass_ms,
        passes=state.passes,
    )


@router.get("/ready", operation_id="ready", responses={503: {"model": Ready, "description": "A part is not ok"}})
async def ready(services: Served, response: Response) -> Ready:
    """Whether every part that the server needs is there."""
    checks = await services.state.checks()
    is_ready = all(found == "ok" for found in checks.values())
    if not is_ready:
        response.status_code = 503
    return Ready(ready=is_ready, checks=checks)


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=_TEXT)
async def metrics(services: Served) -> Response:
    """What the server has counted."""
    return Response(services.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/audit", operation_id="audit", responses=problems(401, 403, 503))
async def audit(services: Served, _admin: Annotated[Principal, needs(Action.SEE_AUDIT)]) -> AuditReport:
    """Whether ledger, counters and readable copies agree."""
    return await services.auditor.audit()


@router.post("/api/audit/repair", operation_id="repair", responses=problems(401, 403, 409, 503))
async def repair(services: Served, principal: Annotated[Principal, needs(Action.REPAIR)]) -> AuditReport:
    """Set counters and readable copies right from the ledger; the answer says what was wrong."""
    return await services.auditor.repair(principal)
