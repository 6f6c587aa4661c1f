"""Quotas: what one may use, and what an administrator lets tenants use."""

from __future__ import annotations

from fastapi import APIRouter

from mooring.api.auth.request_access import Served, User
from mooring.api.middleware.errors import problems
from mooring.model.tenancy.quotas import Scope
from mooring.wire.tenancy.quotas import QuotaChange, QuotaView, ScopeName
from mooring.wire.tenancy.tenants import RevertRequest

router = APIRouter(prefix="/api/quotas", tags=["quotas"], responses=problems(401, 503))


@router.get("", operation_id="quotas")
async def own(services: Served, principal: User) -> QuotaView:
    """Every limit that holds for one's own work, with what is in use and what is left."""
    return await services.quotas.own(principal)


@router.get("/{scope}/{tenant}", operation_id="quota", responses=problems(404, 422))
async def of_tenant(services: Served, principal: User, scope: ScopeName, tenant: str) -> QuotaView:
    """The limits of one tenant: a keypair by its access key, another by its name or id."""
    return await services.quotas.of(principal, Scope(scope), tenant)


@router.put("/{scope}/{tenant}", operation_id="change_quota", responses=problems(403, 404, 422))
async def change(services: Served, principal: User, scope: ScopeName, tenant: str, request: QuotaChange) -> QuotaView:
    """Set or take away limits, for good or until a time, and what a project has for sure in a pool."""
    return await services.quotas.change(principal, Scope(scope), tenant, request)


@router.post("/{scope}/{tenant}/revert", operation_id="revert_quota", responses=problems(403, 404, 422))
async def revert(services: Served, principal: User, scope: ScopeName, tenant: str, request: RevertRequest) -> QuotaView:
    """Give a tenant the quota of an earlier version back, as a new version; 1 is that before any change."""
    return await services.quotas.revert(principal, Scope(scope), tenant, request.version)
