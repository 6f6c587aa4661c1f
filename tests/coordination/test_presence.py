"""Servers say that they are there, and those that have been silent for a day are forgotten."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from mooring.clock import now
from mooring.coordination.presence import attend, is_there
from mooring.store.control import servers
from mooring.store.control.servers import ServerRecord
from mooring.store.core.engine import Database


async def listed(database: Database) -> list[ServerRecord]:
    async with database.read() as connection:
        return await servers.everyone(connection)


async def test_a_server_is_listed_until_it_leaves_and_others_until_they_were_silent_for_a_day(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    notified: list[None] = []
    for name, hours in (("dead", 25), ("killed", 1)):
        at = now() - timedelta(hours=hours)
        record = ServerRecord(name, "all", "http://a", "1", at, at)
        await database.write(partial(servers.note, server=record))
    database.on_commit.append(lambda _topics: notified.append(None))
    beats = asyncio.Semaphore(0)
    really = asyncio.sleep

    async def sleep(seconds: float) -> None:
        beats.release()
        await really(0.001)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    attending = asyncio.create_task(attend(database, "me", role="api", url="http://me", version="2"))
    for _ in range(2):
        await beats.acquire()
    killed, me = await listed(database)
    assert (killed.name, is_there(killed, now())) == ("killed", False)
    assert (me.name, me.role, me.url, me.version, is_there(me, now())) == ("me", "api", "http://me", "2", True)
    assert me.last_seen_at > me.started_at
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    assert [server.name for server in await listed(database)] == ["killed"]
    assert notified == []
