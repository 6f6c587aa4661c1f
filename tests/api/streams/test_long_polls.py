"""Long polls return only after the awaited change, and count as streams."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.model.lifecycle import TaskStatus as T
from mooring.store.views import workloads as views
from mooring.store.views.workloads import WaitState
from tests.api.world import World
from tests.store.databases import on_sqlite

RUN = (T.SCHEDULED, T.PREPARING, T.RUNNING)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_long_poll_returns_only_after_a_change_of_its_own_workload(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    headers = await world.user("ada")
    await world.add_node("n1")
    train, other = await world.submit(headers, name="train"), await world.submit(headers, name="other")
    looks: list[UUID] = []
    look = views.wait_state

    async def noted(connection: Any, workload_id: UUID) -> WaitState | None:
        looks.append(workload_id)
        return await look(connection, workload_id)

    monkeypatch.setattr(views, "wait_state", noted)
    feed = world.services.feed
    with feed.reading():
        await until(lambda: feed._end is not None)
        paths = [f"/api/workloads/{ref}/wait?for=running&timeout=60" for ref in (train, other)]
        waiting = [asyncio.create_task(world.client.get(path, headers=headers)) for path in paths]
        # Each looks once before it watches, and once after that.
        await until(lambda: sorted(looks) == sorted([UUID(train), UUID(other)] * 2))
        await world.move(other, *RUN)
        world.changes.send()
        assert (await waiting[1]).json()["status"] == "RUNNING"
        assert looks.count(UUID(train)) == 2
        await world.move(train, *RUN)
        world.changes.send()
        assert (await waiting[0]).json()["status"] == "RUNNING"
    assert feed._watched == {}


@on_sqlite
async def test_long_polls_count_as_streams_of_their_user(world: World):
    ada, bob = await world.user("ada"), await world.user("bob")
    for headers in (ada, bob):
        await world.submit(headers, name="train")
    load = LoadShedding(LoadLimits(streams=2))
    world.app.state.services = replace(world.services, load=load)
    path = "/api/workloads/train/wait"
    waiting = [asyncio.create_task(world.client.get(path, headers=ada)) for _ in range(2)]
    await until(lambda: len(load.rates._streams) == 2)
    refused = await world.client.get(path, headers=ada)
    assert (refused.status_code, refused.json()["code"]) == (429, "too-many-streams")
    assert refused.headers["Retry-After"] == "5"
    waiting.append(asyncio.create_task(world.client.get(path, headers=bob)))
    await until(lambda: len(load.rates._streams) == 3)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await until(lambda: not load.rates._streams)
