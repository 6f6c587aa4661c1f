"""Join tokens: how an admin lets a machine in."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Response

from mooring.api.auth.request_access import Served, needs
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.access import Action
from mooring.model.tenancy.tenants import Principal
from mooring.services.submission.placement_constraints import taints_of
from mooring.store.nodes import join_tokens
from mooring.store.tenancy.admin_actions import Actor
from mooring.wire.cluster.nodes import JoinToken, JoinTokenRequest

router = APIRouter(prefix="/api/join-tokens", tags=["nodes"], responses=problems(401, 403, 503))


@router.post("", status_code=201, operation_id="create_join_token", responses=problems(404, 422))
async def create(
    services: Served,
    admin: Annotated[Principal, needs(Action.CHANGE_NODES)],
    request: JoinTokenRequest,
    response: Response,
) -> JoinToken:
    """Create a join token: one agent joins one pool under one name, once. Only this response contains it."""
    now = services.now()
    expires_at = now + timedelta(seconds=request.expires_in_seconds)
    token = await services.database.write(
        lambda c: join_tokens.create(
            c,
            node_name=request.name,
            pool=request.pool,
            created_by=admin.user_id,
            expires_at=expires_at,
            now=now,
            region=request.region,
            labels=request.labels,
            taints=taints_of(request.taints),
            actor=Actor.of(admin),
        )
    )
    response.headers["Cache-Control"] = "no-store"
    return JoinToken(token=token, name=request.name, pool=request.pool, expires_at=expires_at)
