"""Pools: sets of nodes with one scheduling policy."""

from __future__ import annotations

from fastapi import APIRouter

from mooring.api.access import Admin, Served, User
from mooring.api.errors import problems
from mooring.api.showing import pool_view
from mooring.model.errors import NotFound
from mooring.store.actions import Actor
from mooring.store.views import nodes as views
from mooring.wire.pools import PoolChange, PoolList, PoolRequest, PoolView

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 503))


@router.get("", operation_id="list_pools")
async def list_pools(services: Served, _principal: User) -> PoolList:
    """Every pool, with how many nodes it has."""
    async with services.database.read() as connection:
        return PoolList(pools=[pool_view(row) for row in await views.all_pools(connection)])


@router.get("/{name}", operation_id="show_pool", responses=problems(404))
async def show_pool(services: Served, _principal: User, name: str) -> PoolView:
    """One pool, with all its options."""
    async with services.database.read() as connection:
        found = await views.pool_by_name(connection, name)
    if found is None:
        raise NotFound(f"there is no pool {name[:63]!r}")
    return pool_view(found)


@router.post("", operation_id="create_pool", status_code=201, responses=problems(400, 403, 409, 413, 422))
async def create_pool(services: Served, admin: Admin, request: PoolRequest) -> PoolView:
    """Make a pool; options that are not given are the defaults."""
    await services.pools.create(request, Actor.of(admin))
    return await show_pool(services, admin, request.name)


@router.patch("/{name}", operation_id="change_pool", status_code=204, responses=problems(400, 403, 404, 413, 422))
async def change_pool(services: Served, admin: Admin, name: str, request: PoolChange) -> None:
    """Change options of a pool; they hold from the next pass on."""
    await services.pools.change(name, request, Actor.of(admin))


@router.delete("/{name}", operation_id="remove_pool", status_code=204, responses=problems(403, 404, 409))
async def remove_pool(services: Served, admin: Admin, name: str) -> None:
    """Remove a pool that has neither nodes nor workloads."""
    await services.pools.remove(name, Actor.of(admin))
