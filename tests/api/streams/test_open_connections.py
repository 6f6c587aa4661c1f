"""Rechecks of open connections."""

import asyncio

import pytest

from mooring.api.auth import logins
from mooring.api.auth.logins import Login
from mooring.api.streams.open_connections import RECHECK_SECONDS, AccessRevoked
from mooring.model.errors import NotAllowed
from mooring.model.tenancy.tenants import Principal
from tests.api.world import World
from tests.store.databases import on_sqlite


@on_sqlite
async def test_a_recheck_follows_every_pause_and_revokes_what_is_no_longer_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    login = await _login(world)
    connections, allowed, paused = world.services.connections, True, asyncio.Queue[float]()
    go_on = asyncio.Semaphore(0)

    async def pause(seconds: float) -> None:
        paused.put_nowait(seconds)
        await go_on.acquire()

    def authorise(_principal: Principal) -> None:
        if not allowed:
            raise NotAllowed("the role has ended")

    monkeypatch.setattr(asyncio, "sleep", pause)
    following = asyncio.create_task(connections.follow())
    with connections.opened(login, authorise) as connection:
        assert await paused.get() == RECHECK_SECONDS
        assert connection.open
        allowed = False
        go_on.release()
        with pytest.raises(AccessRevoked, match="the role has ended"):
            await connection.run(asyncio.Event().wait())
        assert await paused.get() == RECHECK_SECONDS
    following.cancel()


async def _login(world: World) -> Login:
    ada = await world.user("ada")
    claims = world.services.tokens.verify(ada["Authorization"].removeprefix("Bearer "))
    async with world.services.database.read() as connection:
        return await logins.by_token(connection, claims)
