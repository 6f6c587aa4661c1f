"""Pools: sets of nodes with one scheduling policy, and the tenants that may use them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from mooring.api.auth.request_access import Served, named, needs
from mooring.api.lookup.tenants import find_domain, find_keypair, find_project
from mooring.api.middleware.errors import problems
from mooring.api.serializers import pool_view
from mooring.clock import now
from mooring.model.tenancy.access import Action, not_there
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Connection
from mooring.store.nodes import pool_access
from mooring.store.tenancy.admin_actions import Actor
from mooring.store.views import automatic_moves
from mooring.store.views import nodes as views
from mooring.wire.cluster.pools import (
    PauseRequest,
    PoolChange,
    PoolList,
    PoolRequest,
    PoolView,
)
from mooring.wire.tenancy.tenants import PoolAccessRequest, PoolAccessView, RevertRequest

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 422, 503))

Reader = Annotated[Principal, needs(Action.SEE_CLUSTER)]
AccessReader = Annotated[Principal, needs(Action.SEE_POOL_ACCESS)]
Admin = Annotated[Principal, needs(Action.CHANGE_POOLS)]


@router.get("", operation_id="list_pools")
async def list_pools(services: Served, _principal: Reader) -> PoolList:
    """List all pools with their number of nodes."""
    async with services.database.read() as connection:
        rows = await views.all_pools(connection)
        moves = await automatic_moves.of_pools(connection, rows, now())
    return PoolList(pools=[pool_view(row, moves.get(row.id)) for row in rows])


@router.get("/{name}", operation_id="show_pool", responses=problems(404))
async def show_pool(services: Served, _principal: Reader, name: str) -> PoolView:
    """Get a pool with all its options."""
    async with services.database.read() as connection:
        found = await views.pool_by_name(connection, named("pool", name))
        if found is None:
            raise not_there(f"pool {name!r}")
        moves = await automatic_moves.of_pools(connection, [found], now())
    return pool_view(found, moves.get(found.id))


@router.post("", operation_id="create_pool", status_code=201, responses=problems(403, 409, 422))
async def create_pool(services: Served, admin: Admin, request: PoolRequest) -> PoolView:
    """Create a pool. Omitted options have their defaults."""
    await services.pools.create(request, Actor.of(admin))
    return await show_pool(services, admin, request.name)


@router.patch("/{name}", operation_id="change_pool", status_code=204, responses=problems(403, 404, 422))
async def change_pool(services: Served, admin: Admin, name: str, request: PoolChange) -> None:
    """Change options of a pool. They take effect with the next pass."""
    await services.pools.change(named("pool", name), request, Actor.of(admin))


@router.delete("/{name}", operation_id="remove_pool", status_code=204, responses=problems(403, 404, 409))
async def remove_pool(services: Served, admin: Admin, name: str) -> None:
    """Remove a pool that has neither nodes nor workloads."""
    await services.pools.remove(named("pool", name), Actor.of(admin))


@router.post("/{name}/revert", operation_id="revert_pool", status_code=204, responses=problems(403, 404, 409, 422))
async def revert_pool(services: Served, admin: Admin, name: str, request: RevertRequest) -> None:
    """Restore the policy of an earlier version of a pool, as a new version."""
    await services.pools.revert(named("pool", name), request.version, Actor.of(admin))


@router.post("/{name}/pause", operation_id="pause_pool", status_code=204, responses=problems(403, 404, 422))
async def pause_pool(services: Served, admin: Admin, name: str, request: PauseRequest) -> None:
    """Place nothing in a pool until it is resumed. Running tasks continue."""
    await services.pools.pause(named("pool", name), request.reason, Actor.of(admin))


@router.post("/{name}/resume", operation_id="resume_pool", status_code=204, responses=problems(403, 404))
async def resume_pool(services: Served, admin: Admin, name: str) -> None:
    """Place the work of a paused pool again."""
    await services.pools.resume(named("pool", name), Actor.of(admin))


@router.get("/{name}/access", operation_id="list_pool_access", responses=problems(403, 404, 422))
async def list_access(services: Served, _reader: AccessReader, name: str) -> list[PoolAccessView]:
    """List the tenants that may use a pool that is not public."""
    async with services.database.read() as connection:
        found = await pool_access.of_pool(connection, named("pool", name))
    return [PoolAccessView(scope=tenant.scope.value, tenant=tenant.id, name=known) for tenant, known in found]


@router.post("/{name}/access", status_code=204, operation_id="grant_pool_access", responses=problems(403, 404, 422))
async def grant_access(services: Served, admin: Admin, name: str, request: PoolAccessRequest) -> None:
    """Let a domain, a project or a keypair use a pool that is not public."""

    async def work(connection: Connection) -> None:
        tenant, known = await _tenant(connection, admin, request)
        await pool_access.grant(
            connection, named("pool", name), tenant, known, actor=Actor.of(admin), now=services.now()
        )

    await services.database.write(work)


@router.delete("/{name}/access", status_code=204, operation_id="revoke_pool_access", responses=problems(403, 404, 422))
async def revoke_access(
    services: Served, admin: Admin, name: str, request: Annotated[PoolAccessRequest, Query()]
) -> None:
    """Revoke the access of a tenant. Work that was already submitted stays."""

    async def work(connection: Connection) -> None:
        tenant, known = await _tenant(connection, admin, request)
        await pool_access.revoke(
            connection, named("pool", name), tenant, known, actor=Actor.of(admin), now=services.now()
        )

    await services.database.write(work)


async def _tenant(connection: Connection, principal: Principal, request: PoolAccessRequest) -> tuple[Tenant, str]:
    """Return the tenant and its readable name."""
    if request.keypair is not None:
        keypair = await find_keypair(connection, principal, request.keypair)
        return Tenant(Scope.KEYPAIR, keypair.access_key), keypair.access_key
    if request.project is not None:
        project = await find_project(connection, principal, request.domain, request.project)
        return Tenant(Scope.PROJECT, str(project.id)), project.path
    domain = await find_domain(connection, principal, request.domain)
    return Tenant(Scope.DOMAIN, str(domain.id)), domain.name
