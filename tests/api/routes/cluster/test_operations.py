"""The leader and the servers, for everybody; a hand-over and a pass, for admins and only at the leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from mooring.api.app import OPERATIONS, create_app
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.shedding import LoadShedding
from mooring.clock import now
from mooring.controllers.scheduling.scheduling_loop import FullPass
from mooring.model.loops import LoopState
from mooring.store.control import leadership, loops, servers
from mooring.store.control.servers import ServerRecord
from mooring.store.core.engine import Connection
from mooring.store.tenancy import admin_actions
from tests.api.world import World
from tests.store.databases import on_postgresql, on_sqlite


@dataclass
class FakeLeader:
    leads: bool = True
    endless: bool = False
    resigned: int = 0
    barrier: asyncio.Barrier | None = None

    async def resign(self) -> None:
        self.resigned += 1

    async def run_pass(self) -> FullPass:
        if self.endless:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        if self.barrier is not None:
            await self.barrier.wait()
        return FullPass(placed=2, impossible=1, waiting=3, seconds=0.25)


@asynccontextmanager
async def process(world: World, leader: FakeLeader | None) -> AsyncIterator[httpx2.AsyncClient]:
    """A server of the same cluster with this scheduler in it."""
    app = create_app(replace(world.services, leader=leader), OPERATIONS)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://mooring.test") as client:
        yield client


async def cluster(world: World, *silent: str) -> int:
    """The server `first` leads, `second` stands by, and `web` serves the API alone; the term of the first."""

    async def write(connection: Connection) -> int:
        term = await leadership.start_term(connection, "first", now(), kind="database")
        if connection.dialect.name == "postgresql":
            assert await leadership.lease(connection, "first", 600)
        for name, role in (("first", "all"), ("second", "scheduler"), ("web", "api")):
            seen_at = now() - timedelta(minutes=10 if name in silent else 0)
            await servers.note(connection, ServerRecord(name, role, f"http://{name}:8000", "1.2", now(), seen_at))
        return term

    return await world.services.database.write(write)


async def received(world: World) -> list[tuple[str, str, str]]:
    async with world.services.database.read() as connection:
        return [(a.action, a.noun, a.object) for a in await admin_actions.page(connection, noun="leader", limit=10)]


async def get(world: World, path: str, user: str = "admin") -> Any:
    return (await world.client.get(path, headers=await world.token(user))).json()


async def test_every_server_reports_the_leader_and_the_standbys(world: World):
    found = await get(world, "/api/leader")
    assert (found["name"], found["term"], found["silent"], found["standbys"]) == (None, 0, True, [])
    term = await cluster(world)
    found = await get(world, "/api/leader")
    assert (found["name"], found["term"], found["coordination"]) == ("first", term, "database")
    assert (found["url"], found["silent"]) == ("http://first:8000", False)
    assert [standby["name"] for standby in found["standbys"]] == ["second"]
    standings = {server["name"]: server["standing"] for server in (await get(world, "/api/servers"))["servers"]}
    assert standings == {"first": "leader", "second": "standby", "web": "api"}


@on_postgresql
async def test_every_server_reports_when_and_why_leadership_was_lost(world: World):
    found = await get(world, "/api/leader")
    assert (found["vacant"], found["vacant_since"], found["vacant_reason"]) == (True, None, "no server has led yet")
    await cluster(world)
    found = await get(world, "/api/leader")
    assert (found["vacant"], found["vacant_reason"]) == (False, None)
    assert (await get(world, "/api/servers"))["vacant_reason"] is None
    waiting = await world.submit(await world.admin(), name="waits")
    assert (await get(world, f"/api/workloads/{waiting}/explanation"))["scheduling"] is None

    async def lose(connection: Connection) -> None:
        await leadership.release(connection, "first", "first: etcd does not answer")
        record = ServerRecord("second", "scheduler", "http://second:8000", "1.2", now(), now(), "etcd")
        await servers.note(
            connection, replace(record, problem="etcd does not answer (UNAVAILABLE)", problem_since=now())
        )

    await world.services.database.write(lose)
    found = await get(world, "/api/leader")
    assert (found["name"], found["vacant"], found["silent"]) == ("first", True, False)
    assert found["vacant_since"] is not None
    assert found["vacant_reason"].startswith("first: etcd does not answer; second cannot campaign: etcd does not")
    assert {standby["name"] for standby in found["standbys"]} == {"first", "second"}
    listed = await get(world, "/api/servers")
    assert listed["vacant_reason"] == found["vacant_reason"]
    assert {server["standing"] for server in listed["servers"]} == {"standby", "api"}
    assert "no server leads since" in (await get(world, f"/api/workloads/{waiting}/explanation"))["scheduling"]


@on_sqlite
async def test_servers_that_are_not_seen_are_silent_and_no_standbys(world: World):
    await cluster(world, "first", "second")
    found = await get(world, "/api/leader")
    assert (found["name"], found["silent"], found["standbys"]) == ("first", True, [])
    standings = {server["name"]: server["standing"] for server in (await get(world, "/api/servers"))["servers"]}
    assert standings == {"first": "silent", "second": "silent", "web": "api"}


@on_sqlite
async def test_the_loops_are_shown_as_the_leader_reported_them(world: World):
    assert (await get(world, "/api/loops"))["loops"] == []
    state = LoopState("nodes", last_run_at=now(), duration_seconds=0.5, outcome="failed", error="Odd", runs=7)
    await world.services.database.write(lambda c: loops.report(c, [state], server="first", term=3))
    (shown,) = (await get(world, "/api/loops"))["loops"]
    assert (shown["name"], shown["server"], shown["term"]) == ("nodes", "first", 3)
    assert (shown["outcome"], shown["error"], shown["runs"], shown["found_by_timer"]) == ("failed", "Odd", 7, 0)


@on_sqlite
async def test_a_server_that_does_not_lead_names_the_leader_and_its_url(world: World):
    headers = await world.admin()
    for leader in (None, FakeLeader(leads=False)):
        async with process(world, leader) as client:
            answer = await client.post("/api/leader/resign", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (409, "not-leader")
    term = await cluster(world)
    for path in ("/api/leader/resign", "/api/leader/pass"):
        answer = await world.client.post(path, headers=headers)
        body = answer.json()
        assert (answer.status_code, body["code"]) == (409, "not-leader")
        assert "first at http://first:8000" in body["message"]
        assert body["details"] == {"leader": "first", "url": "http://first:8000", "term": term}
    assert await received(world) == []


@on_sqlite
async def test_a_leader_resigns_if_a_standby_exists(world: World):
    headers, leader = await world.admin(), FakeLeader()
    async with process(world, leader) as client:
        await cluster(world, "second")
        answer = await client.post("/api/leader/resign", headers=headers)
        assert (answer.status_code, answer.json()["code"], leader.resigned) == (409, "no-standby", 0)
        await cluster(world)
        answer = await client.post("/api/leader/resign", headers=headers)
        assert (answer.status_code, leader.resigned) == (204, 1)
    assert await received(world) == [("resign", "leader", "first")]


@on_sqlite
async def test_a_pass_returns_its_result(world: World):
    headers, leader = await world.admin(), FakeLeader()
    await cluster(world)
    async with process(world, leader) as client:
        answer = await client.post("/api/leader/pass", headers=headers)
        assert answer.json() == {"placed": 2, "impossible": 1, "waiting": 3, "seconds": 0.25}
        leader.endless = True
        answer = await client.post("/api/leader/pass", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (503, "pass-not-over")
        # A server that only schedules has nothing else.
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/api/workloads", headers=headers)).status_code == 404
    assert await received(world) == [("pass", "leader", "first")] * 2


@on_sqlite
async def test_a_request_that_waits_for_a_pass_delays_no_other(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mooring.api.middleware.load_shedding.fair_queue._MAX_BURST_SECONDS", 60)
    await cluster(world)
    headers, leader = await world.admin(), FakeLeader(barrier=asyncio.Barrier(2))
    alone = replace(world, services=replace(world.services, load=LoadShedding(LoadLimits(seats=1))))
    async with process(alone, leader) as client:
        passes = [client.post("/api/leader/pass", headers=headers) for _ in range(2)]
        async with asyncio.timeout(30):
            answers = await asyncio.gather(*passes)
        assert [answer.status_code for answer in answers] == [200, 200]
