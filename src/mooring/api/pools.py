"""Pools: sets of nodes with one scheduling policy."""

from __future__ import annotations

from fastapi import APIRouter

from mooring.api.access import Served, User
from mooring.api.errors import problems
from mooring.api.showing import pool_view
from mooring.store.views import nodes as views
from mooring.wire.api import PoolList

router = APIRouter(prefix="/api/pools", tags=["pools"], responses=problems(401, 503))


@router.get("", operation_id="list_pools")
async def list_pools(services: Served, _principal: User) -> PoolList:
    """Every pool, with how many nodes it has."""
    async with services.database.read() as connection:
        return PoolList(pools=[pool_view(row) for row in await views.all_pools(connection)])
