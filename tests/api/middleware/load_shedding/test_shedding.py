"""Load shedding as clients of the API meet it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import httpx2
import pytest
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from mooring.api.app import EVERYTHING, create_app
from mooring.api.middleware.load_shedding.limits import LoadLimits
from mooring.api.middleware.load_shedding.shedding import Flow, KnownCredentials, LoadShedding
from mooring.model.errors import TooManyAttempts
from tests.api.auth.test_login_throttle import Clock
from tests.api.routes.tenancy.test_keypairs import basic, make
from tests.api.world import World
from tests.store.databases import on_sqlite


class Crowd:
    """An API of few seats, and a route that holds one as long as the test wants."""

    def __init__(self, world: World, seats: int = 1) -> None:
        self.entered, self.leave = asyncio.Event(), asyncio.Event()
        router = APIRouter()

        @router.post("/slow")
        async def slow() -> None:
            self.entered.set()
            await self.leave.wait()

        @router.get("/stream")
        async def stream(request: Request) -> StreamingResponse:
            async def pieces() -> AsyncIterator[bytes]:
                yield b"begun"
                self.entered.set()
                await self.leave.wait()

            return StreamingResponse(pieces())

        limits = LoadLimits(seats=seats, operator_seats=1, unverified_seats=1, queue_length=1, queue_seconds=60)
        self.load = LoadShedding(limits, clock=Clock())
        services = replace(world.services, load=self.load)
        app = create_app(services, (*EVERYTHING, router))
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://mooring.test")
        self._tasks: list[asyncio.Task[httpx2.Response]] = []

    async def fill(self, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        """One user has a seat, and as many queued as it may."""
        # A request that queues stays until the end, however long the others take.
        monkeypatch.setattr("mooring.api.middleware.load_shedding.fair_queue._MAX_BURST_SECONDS", 60)
        self.start("POST", "/slow", headers)
        await self.entered.wait()
        queued = self.start("POST", "/slow", headers)
        while not (self.load._users._queued or self.load._unverified._queued):
            assert not queued.done()
            await asyncio.sleep(0)

    def start(self, method: str, path: str, headers: dict[str, str]) -> asyncio.Task[httpx2.Response]:
        self._tasks.append(asyncio.create_task(self.client.request(method, path, headers=headers)))
        return self._tasks[-1]

    async def end(self) -> list[int]:
        self.leave.set()
        return [answer.status_code for answer in await asyncio.gather(*self._tasks)]


class Body:
    """A body that tells how much of it was read."""

    def __init__(self) -> None:
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.read += 1
        yield b"{}"


@on_sqlite
async def test_a_flooding_user_is_refused_before_the_body_is_read_and_others_are_served(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    crowd = Crowd(world, seats=2)
    ada, bob = await world.user("ada"), await world.user("bob")
    await crowd.fill(ada, monkeypatch)
    body = Body()
    refused = await crowd.client.post("/slow", content=body, headers=ada)
    assert (refused.status_code, refused.json()["code"], body.read) == (429, "overloaded", 0)
    assert int(refused.headers["Retry-After"]) >= 1
    assert "X-Request-Id" in refused.headers
    # Another login of the same user is the same flow.
    assert (await crowd.client.post("/slow", headers=await world.token("ada"))).status_code == 429
    assert (await crowd.client.get("/api/auth/me", headers=bob)).status_code == 200
    for path in ("/health", "/ready", "/metrics"):
        assert (await crowd.client.get(path)).status_code == 200
    assert set(await crowd.end()) == {200}


@on_sqlite
async def test_unverified_requests_queue_by_address_and_take_no_seat_of_users(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    crowd = Crowd(world)
    ada = await world.user("ada")
    await crowd.fill({}, monkeypatch)
    for made_up in ({}, {"Authorization": "Bearer made-up"}, {"Authorization": "Basic bm9ib2R5Om5v"}):
        refused = await crowd.client.get("/api/pools", headers=made_up)
        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert (await crowd.client.get("/api/auth/me", headers=ada)).status_code == 200
    assert set(await crowd.end()) == {200}


@on_sqlite
async def test_reads_of_admins_have_seats_of_their_own(world: World, monkeypatch: pytest.MonkeyPatch):
    crowd = Crowd(world)
    admin, ada = await world.admin(), await world.user("ada")
    assert (await crowd.client.get("/api/auth/me", headers=admin)).status_code == 200
    await crowd.fill(ada, monkeypatch)
    assert (await crowd.client.get("/api/nodes", headers=admin)).status_code == 200
    waiting = crowd.start("POST", "/slow", admin)
    assert (await crowd.client.get("/api/nodes", headers=admin)).status_code == 200
    assert not waiting.done()
    assert set(await crowd.end()) == {200}


@on_sqlite
async def test_a_stream_and_a_long_poll_hold_no_seat(world: World):
    crowd = Crowd(world)
    headers = await world.admin()
    workload = await world.submit(headers)
    crowd.start("GET", "/stream", headers)
    await crowd.entered.wait()
    long_poll = asyncio.create_task(crowd.client.get(f"/api/workloads/{workload}/wait", headers=headers))
    await world.changes.waiting.wait()
    for _ in range(3):
        assert (await crowd.client.get("/api/auth/me", headers=headers)).status_code == 200
    long_poll.cancel()
    await crowd.end()


@on_sqlite
async def test_the_body_of_a_request_without_a_valid_credential_is_not_read(world: World):
    for headers in ({}, {"Authorization": "Bearer made-up"}, {"Authorization": "Basic bm9ib2R5Om5v"}):
        body = Body()
        answer = await world.client.post("/api/workloads", content=body, headers=headers)
        assert (answer.status_code, body.read) == (401, 0)


@on_sqlite
async def test_a_keypair_is_a_flow_of_its_user_from_its_first_request_on(world: World):
    ada = await world.user("ada")
    _, keypair = await make(world, ada)
    await world.submit(keypair)
    flow = world.services.load.credentials.owner(keypair["Authorization"].encode())
    assert f"user {flow}" in world.services.load._users._flows
    assert (await world.client.get("/api/auth/me", headers=keypair)).status_code == 200


@on_sqlite
async def test_the_first_request_of_a_keypair_neither_queues_nor_pays_with_its_address(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    crowd = Crowd(world)
    _, keypair = await make(world, await world.user("ada"))
    await crowd.fill({}, monkeypatch)
    while _pays(crowd.load):
        pass
    assert (await crowd.client.get("/api/pools")).status_code == 429
    assert (await crowd.client.get("/api/auth/me", headers=keypair)).status_code == 200
    assert set(await crowd.end()) == {200}


def _pays(load: LoadShedding) -> bool:
    """Charge the address of the test's client until its bucket is empty."""
    try:
        load.rates.address("address 127.0.0.1")
    except TooManyAttempts:
        return False
    return True


@on_sqlite
async def test_a_keypair_in_use_stays_known(world: World):
    clock = Clock()
    load = LoadShedding(clock=clock)
    world.app.state.services = replace(world.services, load=load)
    _, keypair = await make(world, await world.user("ada"))
    for _ in range(4):
        assert (await world.client.get("/api/auth/me", headers=keypair)).status_code == 200
        clock.time += 50
        assert load.credentials.owner(keypair["Authorization"].encode()) is not None


@on_sqlite
async def test_simultaneous_first_requests_of_a_keypair_are_looked_up_once(world: World):
    load = LoadShedding(LoadLimits(keypair_lookups=0.5), clock=Clock())
    world.app.state.services = replace(world.services, load=load)
    _, keypair = await make(world, await world.user("ada"))
    asked = [world.client.get("/api/auth/me", headers=keypair) for _ in range(20)]
    assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}


@on_sqlite
async def test_look_ups_of_one_access_key_are_limited_and_those_of_others_are_not(world: World):
    load = LoadShedding(LoadLimits(keypair_lookups=1), clock=Clock())
    world.app.state.services = replace(world.services, load=load)
    made, _ = await make(world, await world.user("ada"))
    _, other = await make(world, await world.user("bob"))
    guesses = [basic(made["access_key"], f"guess-{number}") for number in range(4)]
    statuses = [(await world.client.get("/api/auth/me", headers=guess)).status_code for guess in guesses]
    assert statuses == [401, 401, 429, 429]
    assert (await world.client.get("/api/auth/me", headers=other)).status_code == 200


@on_sqlite
async def test_a_revoked_token_belongs_to_the_flow_of_its_address_until_it_is_valid_again(world: World):
    admin, ada = await world.admin(), await world.user("ada")
    credentials = world.services.load.credentials
    shown = ada["Authorization"].encode()
    assert (await world.client.get("/api/auth/me", headers=ada)).status_code == 200
    assert credentials.owner(shown) is not None
    change = {"active": False}
    assert (await world.client.patch("/api/users/ada", json=change, headers=admin)).status_code == 200
    assert (await world.client.get("/api/auth/me", headers=ada)).status_code == 401
    assert credentials.known(shown)
    assert credentials.owner(shown) is None
    body = Body()
    answer = await world.client.post("/api/workloads", content=body, headers=ada)
    assert (answer.status_code, body.read) == (401, 0)


@on_sqlite
async def test_a_credential_that_became_valid_again_is_accepted_at_the_next_request(world: World):
    ada = await world.user("ada")
    world.services.load.credentials.remember(ada["Authorization"].encode(), None)
    body = {"containers": [{"image": "nginx"}]}
    first = await world.client.post("/api/workloads", json=body, headers=ada)
    assert (first.status_code, first.json()["code"]) == (503, "try-again")
    assert (await world.client.post("/api/workloads", json=body, headers=ada)).status_code == 202


@on_sqlite
async def test_answers_to_wrong_credentials_are_paced_by_address(world: World):
    load = LoadShedding(clock=Clock())
    world.app.state.services = replace(world.services, load=load)
    assert (await world.client.get("/api/pools")).status_code == 401
    ((flow, due),) = load._next_refusal.items()
    assert flow.startswith("address ")
    assert due > 0
    ada = await world.user("ada")
    assert (await world.client.get("/api/pools", headers=ada)).status_code == 200
    assert list(load._next_refusal) == [flow]


def test_a_known_credential_is_forgotten_after_a_while_and_there_is_a_bound():
    clock = Clock()
    credentials = KnownCredentials(clock)
    credentials.remember(b"Bearer one", UUID(int=1))
    assert credentials.owner(b"Bearer one") == UUID(int=1)
    assert credentials.owner(b"Bearer two") is None
    clock.time += 61
    assert not credentials.known(b"Bearer one")
    for number in range(20_000):
        credentials.remember(str(number).encode(), None)
    assert len(credentials._owners) == 10_000


async def test_refusals_of_one_flow_are_spread_over_time():
    clock = Clock()
    load = LoadShedding(clock=clock)
    ada, bob = Flow("user ada"), Flow("user bob")
    await load.pace_refusal(ada)
    second = asyncio.create_task(load.pace_refusal(ada))
    await asyncio.sleep(0)
    assert not second.done()
    # Nobody else is held up by it.
    await load.pace_refusal(bob)
    await second
