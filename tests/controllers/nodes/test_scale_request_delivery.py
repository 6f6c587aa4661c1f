"""Requests for nodes on their way to a resource controller over real HTTP, and to hooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mooring import clock, hooks
from mooring.controllers.deliveries import DeliveryLoop
from mooring.model.templates import NodeTemplate, ScaleRequest, ScaleRequestStatus
from mooring.resource_controller import ResourceController
from mooring.store import node_templates, scale_requests
from mooring.store.actions import SERVER
from mooring.store.ids import new_id
from tests.servers import free_port
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

pytestmark = on_sqlite
S = ScaleRequestStatus
PATH = "/api/internal/workers/scale-up"
START = datetime(2026, 5, 1, tzinfo=UTC)


class Controller:
    """A resource controller that answers as it is told, and makes nodes once for each key."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.authorization: str | None = None
        self.made: dict[str, int] = {}
        self.slow: asyncio.Event | None = None

    async def scale_up(self, request: web.Request) -> web.Response:
        key, body = request.headers["Idempotency-Key"], await request.json()
        self.seen.append((key, body))
        self.authorization = request.headers.get("Authorization")
        if self.slow is not None:
            await self.slow.wait()
        status = self.answers.pop(0) if self.answers else 202
        if status < 300:
            self.made.setdefault(key, body["nodes"])
        return web.Response(
            status=status, text="" if status < 300 else "no\x1b such flavour", headers={"Location": "/"}
        )


@pytest.fixture
async def controller() -> Controller:
    return Controller()


@pytest.fixture
async def url(controller: Controller) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post(PATH, controller.scale_up)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")
        if controller.slow is not None:
            controller.slow.set()


class Time:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "source", time)
    return time


async def ask(harbour: Harbour, number: int = 2, *, template: str = "small") -> ScaleRequest:
    made = NodeTemplate(template, allocatable={"cpu": 4000}, licence="personal", boot_seconds=600)
    request = ScaleRequest(
        new_id(), "default", template, S.REQUESTED, ({new_id(): 1},) * number, START + timedelta(hours=1), START,
        next_attempt_at=START,
    )  # fmt: skip

    async def write(connection: Any) -> None:
        await node_templates.put(connection, made, actor=SERVER, now=START)
        await scale_requests.insert_new(connection, [request], now=START, term=harbour.office.term)

    await harbour.database.write(write)
    return request


async def present(harbour: Harbour) -> list[ScaleRequest]:
    async with harbour.database.read() as connection:
        return await scale_requests.newest(connection, pool=None, limit=10)


async def test_a_request_is_delivered_with_what_its_nodes_are_to_be(
    harbour: Harbour, time: Time, controller: Controller, url: str
):
    request = await ask(harbour)
    loop = DeliveryLoop(harbour.database, harbour.office, ResourceController(url, "secret"))
    time.at = START + timedelta(minutes=5)
    await loop.once()
    [(key, body)] = controller.seen
    assert (key, body["id"], body["nodes"], body["template"]) == (str(request.id), str(request.id), 2, "small")
    assert body["node"]["resources"] == {"cpu": "4"}
    assert body["node"]["licence"] == "personal"
    assert len(body["workloads"]) == 1
    assert controller.authorization == "Bearer secret"
    [delivered] = await present(harbour)
    assert (delivered.status, delivered.attempts, delivered.delivered_at) == (S.DELIVERED, 1, time.at)
    # Its nodes boot from now on.
    assert delivered.expires_at == time.at + timedelta(seconds=2 * 600 + 300)
    assert not await loop.once()
    assert len(controller.seen) == 1
    assert [event.kind for event in await harbour.feed(request.id)] == ["REQUESTED", "DELIVERED"]


@pytest.mark.parametrize("status", [500, 503, 408, 429])
async def test_what_fails_for_now_is_tried_again_with_the_same_key(
    status: int, harbour: Harbour, time: Time, controller: Controller, url: str
):
    await ask(harbour)
    loop = DeliveryLoop(harbour.database, harbour.office, ResourceController(url))
    controller.answers = [status, status]
    for attempt in (1, 2):
        await loop.once()
        [tried] = await present(harbour)
        assert (tried.status, tried.attempts) == (S.REQUESTED, attempt)
        assert tried.error is not None
        assert str(status) in tried.error
        assert tried.next_attempt_at is not None
        # Not before its pause is over; and then it wakes by itself.
        await loop.once()
        assert len(controller.seen) == attempt
        wait = (tried.next_attempt_at - time.at).total_seconds()
        assert attempt <= wait <= 2 * attempt
        assert loop.alarm.wait_seconds(600) == pytest.approx(wait)
        time.at = tried.next_attempt_at
    await loop.once()
    [delivered] = await present(harbour)
    assert (delivered.status, delivered.error) == (S.DELIVERED, None)
    assert len({key for key, _ in controller.seen}) == 1
    assert list(controller.made.values()) == [2]


@pytest.mark.parametrize("status", [400, 409, 422, 302])
async def test_a_refusal_is_final_and_its_words_are_kept(
    status: int, harbour: Harbour, time: Time, controller: Controller, url: str
):
    await ask(harbour)
    loop = DeliveryLoop(harbour.database, harbour.office, ResourceController(url))
    controller.answers = [status]
    await loop.once()
    [refused] = await present(harbour)
    assert (refused.status, refused.next_attempt_at) == (S.REFUSED, None)
    assert refused.error is not None
    assert "such flavour" in refused.error
    assert "\x1b" not in refused.error
    time.at += timedelta(hours=1)
    await loop.once()
    assert len(controller.seen) == 1


async def test_a_controller_that_is_down_is_asked_again_and_no_secret_is_told(
    harbour: Harbour, time: Time, logged: list[MutableMapping[str, Any]]
):
    await ask(harbour)
    address = f"127.0.0.1:{free_port()}"
    for down in (
        ResourceController(f"http://mooring:hunter2@{address}"),
        ResourceController(f"http://{address}", "hunter3"),
    ):
        await DeliveryLoop(harbour.database, harbour.office, down).once()
        time.at += timedelta(minutes=5)
    [tried] = await present(harbour)
    assert tried.status is S.REQUESTED
    assert tried.error is not None
    assert "cannot be reached" in tried.error
    assert tried.attempts == 2
    assert "hunter" not in f"{logged} {tried}"


async def test_a_controller_that_does_not_answer_is_given_up_after_a_time_and_may_have_heard(
    harbour: Harbour, time: Time, controller: Controller, url: str
):
    await ask(harbour)
    controller.slow = asyncio.Event()
    await DeliveryLoop(harbour.database, harbour.office, ResourceController(url, seconds=0.2)).once()
    [tried] = await present(harbour)
    assert tried.status is S.REQUESTED
    assert tried.error is not None
    assert "in time" in tried.error
    controller.slow.set()
    assert tried.next_attempt_at is not None
    time.at = tried.next_attempt_at
    await DeliveryLoop(harbour.database, harbour.office, ResourceController(url)).once()
    assert [each.status for each in await present(harbour)] == [S.DELIVERED]
    # Asked twice under one key, nodes were made once.
    assert len(controller.made) == 1


async def test_several_are_delivered_side_by_side(harbour: Harbour, time: Time, controller: Controller, url: str):
    for number in range(10):
        await ask(harbour, template=f"t{number}")
    loop = DeliveryLoop(harbour.database, harbour.office, ResourceController(url))
    while await loop.once():
        pass
    assert len(controller.made) == 10
    assert {each.status for each in await present(harbour)} == {S.DELIVERED}


async def test_hooks_are_told_once_and_cannot_hurt(
    harbour: Harbour, time: Time, controller: Controller, url: str, logged: list[MutableMapping[str, Any]]
):
    told: list[Any] = []

    def fails(_facts: object) -> None:
        raise OSError("no phone")

    installed = {"good": SimpleNamespace(scale_up=told.append), "bad": SimpleNamespace(scale_up=fails)}
    request = await ask(harbour)
    found = hooks.with_method(installed, "scale_up")
    loop = DeliveryLoop(harbour.database, harbour.office, ResourceController(url), found)
    controller.answers = [503]
    await loop.once()
    [tried] = await present(harbour)
    assert tried.next_attempt_at is not None
    time.at = tried.next_attempt_at
    await loop.once()
    assert [facts["id"] for facts in told] == [str(request.id)]
    assert any("'bad' raised OSError: no phone" in entry["event"] for entry in logged)
    assert [each.status for each in await present(harbour)] == [S.DELIVERED]


async def test_a_hook_alone_takes_requests_and_without_anybody_they_stay(harbour: Harbour, time: Time):
    await ask(harbour)
    assert not await DeliveryLoop(harbour.database, harbour.office, None).once()
    assert [each.status for each in await present(harbour)] == [S.REQUESTED]
    told: list[Any] = []
    found = hooks.with_method({"own": SimpleNamespace(scale_up=told.append)}, "scale_up")
    await DeliveryLoop(harbour.database, harbour.office, None, found).once()
    assert [each.status for each in await present(harbour)] == [S.DELIVERED]
    assert told[0]["node"]["boot_seconds"] == 600
