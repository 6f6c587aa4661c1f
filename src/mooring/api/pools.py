"""Pools: sets of nodes with one scheduling policy."""

from __future__ import annotations

from fastapi import APIRouter

from mooring.api.access import Admin, Served, User
from mooring.api.errors import problems
from mooring.api.showing import pool_view
from mooring.store.views import nodes as views
from mooring.wire.api import PoolChange, PoolList

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 503))


@router.patch("/{name}", operation_id="change_pool", status_code=204, responses=problems(400, 403, 404, 413, 422))
async def change_pool(services: Served, _principal: Admin, name: str, request: PoolChange) -> None:
    """Choose the profile of a pool, or the weights of its scorers; it holds from the next pass on."""
    await services.pools.change(name, request)


@router.get("", operation_id="list_pools")
async def list_pools(services: Served, _principal: User) -> PoolList:
    """Every pool, with how many nodes it has."""
    async with services.database.read() as connection:
        return PoolList(pools=[pool_view(row) for row in await views.all_pools(connection)])
