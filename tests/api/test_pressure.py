"""The load of the whole process: so many requests at once, a few that wait, and a clear answer for the rest."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from mooring.api import pressure as module
from mooring.api.app import EVERYTHING, create_app
from mooring.api.pressure import Pressure, Turn
from mooring.model.errors import TooManyAttempts
from tests.api.test_throttle import Clock
from tests.api.world import World
from tests.store.databases import on_sqlite


async def waiting(pressure: Pressure, number: int) -> list[asyncio.Task[Turn]]:
    """So many requests that came and have no turn yet."""
    tasks = [asyncio.create_task(pressure.turn()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_so_many_at_once_and_the_others_begin_in_the_order_of_their_coming():
    pressure = Pressure(2)
    first, second = await pressure.turn(), await pressure.turn()
    third, fourth = await waiting(pressure, 2)
    second.release()
    second.release()
    await third
    assert not fourth.done()
    first.release()
    await fourth


async def work_off(pressure: Pressure, clock: Clock, seconds: float) -> None:
    """Many requests one after the other, which each take so long."""
    for _ in range(60):
        turn = await pressure.turn()
        clock.time += seconds
        turn.release()


async def test_as_many_wait_as_can_begin_soon_and_the_rest_is_told_when_to_come_back():
    clock = Clock()
    pressure = Pressure(2, clock=clock)
    await work_off(pressure, clock, 0.05)
    turns = [await pressure.turn(), await pressure.turn()]
    # Each turn that ends lets one begin, every 50 ms: the sixth would begin in 300 ms.
    burst = await waiting(pressure, 7)
    assert [task.done() for task in burst] == [False] * 6 + [True]
    with pytest.raises(TooManyAttempts) as refused:
        await burst[-1]
    assert refused.value.code == "overloaded"
    assert refused.value.details["retry_after_seconds"] >= 1
    assert not pressure.has_place(0)
    for turn in turns:
        turn.release()
    await asyncio.gather(*burst[:2])
    assert pressure.has_place(0)


async def test_turns_that_were_side_by_side_let_as_many_wait():
    clock = Clock()
    pressure = Pressure(2, clock=clock)
    running = [await pressure.turn(), await pressure.turn()]
    for _ in range(60):
        clock.time += 0.05
        running.pop(0).release()
        running.append(await pressure.turn())
    burst = await waiting(pressure, 7)
    assert [task.done() for task in burst] == [False] * 6 + [True]
    await asyncio.gather(burst[-1], return_exceptions=True)


async def flood(pressure: Pressure, clock: Clock, seconds: float) -> None:
    """As many come as may, and many more; each turn takes so long."""
    requests = await waiting(pressure, 66)
    for _ in range(100):
        assert not pressure.has_place(0)
    for request in requests:
        turn = await request
        clock.time += seconds
        turn.release()


async def test_in_a_flood_fewer_are_at_work_and_nobody_waits_until_it_is_over():
    clock = Clock()
    pressure = Pressure(6, clock=clock)
    await work_off(pressure, clock, 0.005)
    await flood(pressure, clock, 0.005)
    turns = [await pressure.turn() for _ in range(3)]
    assert not pressure.has_place(0)
    for turn in turns:
        turn.release()
    await work_off(pressure, clock, 0.005)
    for _ in range(6):
        await pressure.turn()
    assert pressure.has_place(0)


async def test_one_who_asks_for_little_gets_the_place_of_one_who_asks_for_much():
    clock = Clock()
    pressure = Pressure(2, clock=clock)
    await work_off(pressure, clock, 0.1)
    greedy, modest = 1, 2
    turn = await pressure.turn(greedy)
    await pressure.turn(greedy)
    early = [asyncio.create_task(pressure.turn(greedy)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not pressure.has_place(greedy)
    assert pressure.has_place(modest)
    late = [asyncio.create_task(pressure.turn(modest)) for _ in range(4)]
    with pytest.raises(TooManyAttempts):
        await early[2]
    await asyncio.sleep(0)
    # Of what is left each has a part, and nobody takes a place from one who asks for no more.
    assert [task.done() for task in early[:2]] == [False, True]
    assert [task.done() for task in late] == [False, False, True, True]
    turn.release()
    await early[0]
    for task in (*early, *late):
        task.cancel()
    await asyncio.gather(*early, *late, return_exceptions=True)


async def test_however_quick_the_turns_are_there_is_a_most_that_waits():
    pressure = Pressure(1)
    await pressure.turn()
    burst = await waiting(pressure, module._MOST_WAITING + 1)
    assert [task.done() for task in burst] == [False] * module._MOST_WAITING + [True]
    with pytest.raises(TooManyAttempts):
        await burst[-1]


async def test_whoever_has_waited_too_long_or_has_gone_takes_no_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_LONGEST_WAIT_SECONDS", 0.01)
    pressure = Pressure(1)
    turn = await pressure.turn()
    with pytest.raises(TooManyAttempts):
        await pressure.turn()
    monkeypatch.setattr(module, "_LONGEST_WAIT_SECONDS", 60)
    gone, going, elected, last = await waiting(pressure, 4)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    going.cancel()
    turn.release()
    # Its turn had come just when it went.
    elected.cancel()
    await asyncio.gather(going, elected, return_exceptions=True)
    (await last).release()
    assert not pressure._asked


async def test_operators_read_by_turns_that_nobody_else_gets():
    pressure = Pressure(1, reserved=1)
    await pressure.turn()
    operator = await pressure.turn(reserved=True)
    (common,) = await waiting(pressure, 1)
    operator.release()
    await asyncio.sleep(0)
    assert not common.done()
    common.cancel()


def test_only_the_credentials_of_the_last_operators_are_remembered():
    pressure = Pressure()
    first = pressure.credential(b"Bearer one")
    pressure.trust(first)
    for number in range(module._MOST_OPERATORS):
        assert pressure.trusts(first) == (number < module._MOST_OPERATORS)
        pressure.trust(pressure.credential(f"Bearer {number}".encode()))
    assert not pressure.trusts(first)
    assert not pressure.trusts(pressure.credential(b""))


class Crowd:
    """An API of one turn, and a route that keeps it as long as the test wants."""

    def __init__(self, world: World) -> None:
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

        self.pressure = Pressure(1, reserved=1, clock=Clock())
        app = create_app(replace(world.services, pressure=self.pressure), (*EVERYTHING, router))
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://mooring.test")
        self._tasks: list[asyncio.Task[httpx2.Response]] = []

    async def fill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All turns are taken, and as many wait as may."""
        monkeypatch.setattr(module, "_MOST_WAITING", 1)
        self.start("POST", "/slow")
        await self.entered.wait()
        self.start("POST", "/slow")
        while not self.pressure._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def start(self, method: str, path: str) -> asyncio.Task[httpx2.Response]:
        self._tasks.append(asyncio.create_task(self.client.request(method, path)))
        return self._tasks[-1]

    async def end(self) -> list[int]:
        self.leave.set()
        return [answer.status_code for answer in await asyncio.gather(*self._tasks)]


@on_sqlite
async def test_an_overloaded_server_refuses_before_it_reads_and_still_says_how_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    # Who waits stays until the end, however long the others take.
    monkeypatch.setattr(module, "_LONGEST_WAIT_SECONDS", 60)
    crowd = Crowd(world)
    await crowd.fill(monkeypatch)
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        sent += 1
        yield b"{}"

    refused = await crowd.client.post("/slow", content=body())
    assert (refused.status_code, refused.json()["code"], sent) == (429, "overloaded", 0)
    assert int(refused.headers["Retry-After"]) >= 1
    assert "X-Request-Id" in refused.headers
    for path in ("/health", "/ready", "/metrics"):
        assert (await crowd.client.get(path)).status_code == 200
    assert set(await crowd.end()) == {200}


@on_sqlite
async def test_operators_who_were_seen_before_can_look_while_others_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    crowd = Crowd(world)
    admin, user = await world.admin(), await world.user("ada")
    for headers in (admin, user):
        assert (await crowd.client.get("/api/auth/me", headers=headers)).status_code == 200
    await crowd.fill(monkeypatch)
    assert (await crowd.client.get("/api/nodes", headers=admin)).status_code == 200
    assert (await crowd.client.get("/api/auth/me", headers=user)).status_code == 429
    assert (await crowd.client.post("/slow", headers=admin)).status_code == 429
    await crowd.end()


@on_sqlite
async def test_a_stream_and_one_who_waits_for_a_workload_hold_up_nobody(world: World):
    crowd = Crowd(world)
    headers = await world.admin()
    workload = await world.submit(headers)
    crowd.start("GET", "/stream")
    await crowd.entered.wait()
    long_poll = asyncio.create_task(crowd.client.get(f"/api/workloads/{workload}/wait", headers=headers))
    await world.changes.waiting.wait()
    for _ in range(3):
        assert (await crowd.client.get("/api/auth/me", headers=headers)).status_code == 200
    long_poll.cancel()
    await crowd.end()
