"""Quotas: the caller's limits, and those that admins set for tenants."""

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
    """List all limits on the caller's work, with the amounts in use and left."""
    return await services.quotas.own(principal)


@router.get("/{scope}/{tenant}", operation_id="quota", responses=problems(404, 422))
async def of_tenant(services: Served, principal: User, scope: ScopeName, tenant: str) -> QuotaView:
    """Get the limits of a tenant: a keypair by access key, any other by name or id."""
    return await services.quotas.of(principal, Scope(scope), tenant)


@router.put("/{scope}/{tenant}", operation_id="change_quota", responses=problems(403, 404, 422))
async def change(services: Served, principal: User, scope: ScopeName, tenant: str, request: QuotaChange) -> QuotaView:
    """Set or remove limits, permanently or until a time, and a project's guarantees in a pool."""
    return await services.quotas.change(principal, Scope(scope), tenant, request)


@router.post("/{scope}/{tenant}/revert", operation_id="revert_quota", responses=problems(403, 404, 422))
async def revert(services: Served, principal: User, scope: ScopeName, tenant: str, request: RevertRequest) -> QuotaView:
    """Restore an earlier version of a tenant's quota, as a new version; 1 is the one before any change."""
    return await services.quotas.revert(principal, Scope(scope), tenant, request.version)
