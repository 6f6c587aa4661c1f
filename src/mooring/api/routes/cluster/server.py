"""The server itself: health, readiness, metrics, and the audit."""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.model.errors import NotAuthenticated
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.wire.cluster.audit import AuditReport
from mooring.wire.cluster.health import Health, Ready

router = APIRouter(tags=["server"], responses=problems())

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/health", operation_id="health")
async def health(services: Served) -> Health:
    """Respond while the process is alive, whatever the state of its parts."""
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
    """Return whether every part that the server needs is available."""
    found = await services.state.readiness()
    is_ready = all(part == "ok" for part in found.checks.values())
    if not is_ready:
        response.status_code = 503
    return Ready(ready=is_ready, checks=found.checks, degraded=found.degraded)


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=problems(401) | _TEXT)
async def metrics(services: Served, request: Request) -> Response:
    """Get the server's metrics. If the setting `metrics_token` is set, it is required as a bearer token."""
    if services.metrics_token is not None:
        expected = f"Bearer {services.metrics_token}".encode()
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode("latin-1"), expected):
            raise NotAuthenticated("metrics need the header 'Authorization: Bearer <metrics_token>'")
    return Response(services.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/api/audit", operation_id="audit", responses=problems(401, 403, 503))
async def audit(services: Served, _admin: Annotated[Principal, needs(Action.SEE_AUDIT)]) -> AuditReport:
    """Check that ledger, counters and readable copies agree."""
    return await services.auditor.audit()


@router.post("/api/audit/repair", operation_id="repair", responses=problems(401, 403, 409, 422, 503))
async def repair(
    services: Served,
    principal: Annotated[Principal, needs(Action.REPAIR)],
    dry_run: Annotated[bool, Query(description="List the changes without making them")] = False,
) -> AuditReport:
    """Correct records that contradict each other; ambiguous ones are reported and not changed."""
    return await services.auditor.repair(principal, dry_run=dry_run)
