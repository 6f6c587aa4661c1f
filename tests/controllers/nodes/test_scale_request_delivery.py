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

from mooring import clock
from mooring.controllers.nodes.scale_request_delivery import ScaleRequestDeliveryLoop
from mooring.extensions import hooks
from mooring.model.nodes.node_templates import NodeTemplate, ScaleRequest, ScaleRequestStatus
from mooring.server.resource_controller import ResourceController
from mooring.store.core.ids import new_id
from mooring.store.scaling import node_templates, scale_requests
from mooring.store.tenancy.admin_actions import SERVER
from tests.servers import free_port
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

pytestmark = on_sqlite
S = ScaleRequestStatus
PATH = "/api/internal/workers/scale-up"
START = datetime(2026, 5, 1, tzinfo=UTC)


class Controller:
    """A resource controller with scripted answers, which creates nodes once per key."""

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


async def ask(harness: Harness, number: int = 2, *, template: str = "small") -> ScaleRequest:
    made = NodeTemplate(template, allocatable={"cpu": 4000}, licence="personal", boot_seconds=600)
    request = ScaleRequest(
        new_id(), "default", template, S.REQUESTED, ({new_id(): 1},) * number, START + timedelta(hours=1), START,
        next_attempt_at=START,
    )  # fmt: skip

    async def write(connection: Any) -> None:
        await node_templates.put(connection, made, actor=SERVER, now=START)
        await scale_requests.insert_new(connection, [request], now=START, term=harness.leadership.term)

    await harness.database.write(write)
    return request


async def present(harness: Harness) -> list[ScaleRequest]:
    async with harness.database.read() as connection:
        return await scale_requests.newest(connection, pool=None, limit=10)


async def test_a_request_is_delivered_with_the_properties_of_its_nodes(
    harness: Harness, time: Time, controller: Controller, url: str
):
    request = await ask(harness)
    loop = ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url, "secret"))
    time.at = START + timedelta(minutes=5)
    await loop.once()
    [(key, body)] = controller.seen
    assert (key, body["id"], body["nodes"], body["template"]) == (str(request.id), str(request.id), 2, "small")
    assert body["node"]["resources"] == {"cpu": "4"}
    assert body["node"]["licence"] == "personal"
    assert len(body["workloads"]) == 1
    assert controller.authorization == "Bearer secret"
    [delivered] = await present(harness)
    assert (delivered.status, delivered.attempts, delivered.delivered_at) == (S.DELIVERED, 1, time.at)
    # Its nodes boot from now on.
    assert delivered.expires_at == time.at + timedelta(seconds=2 * 600 + 300)
    assert not await loop.once()
    assert len(controller.seen) == 1
    assert [event.kind for event in await harness.feed(request.id)] == ["REQUESTED", "DELIVERED"]


@pytest.mark.parametrize("status", [500, 503, 408, 429])
async def test_a_temporary_failure_is_retried_with_the_same_idempotency_key(
    status: int, harness: Harness, time: Time, controller: Controller, url: str
):
    await ask(harness)
    loop = ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url))
    controller.answers = [status, status]
    for attempt in (1, 2):
        await loop.once()
        [tried] = await present(harness)
        assert (tried.status, tried.attempts) == (S.REQUESTED, attempt)
        assert tried.error is not None
        assert str(status) in tried.error
        assert tried.next_attempt_at is not None
        # Not before its pause is over; then it runs without a signal.
        await loop.once()
        assert len(controller.seen) == attempt
        wait = (tried.next_attempt_at - time.at).total_seconds()
        assert attempt <= wait <= 2 * attempt
        assert loop.alarm.wait_seconds(600) == pytest.approx(wait)
        time.at = tried.next_attempt_at
    await loop.once()
    [delivered] = await present(harness)
    assert (delivered.status, delivered.error) == (S.DELIVERED, None)
    assert len({key for key, _ in controller.seen}) == 1
    assert list(controller.made.values()) == [2]


@pytest.mark.parametrize("status", [400, 409, 422, 302])
async def test_a_rejection_is_final_and_its_text_is_stored(
    status: int, harness: Harness, time: Time, controller: Controller, url: str
):
    await ask(harness)
    loop = ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url))
    controller.answers = [status]
    await loop.once()
    [refused] = await present(harness)
    assert (refused.status, refused.next_attempt_at) == (S.REFUSED, None)
    assert refused.error is not None
    assert "such flavour" in refused.error
    assert "\x1b" not in refused.error
    time.at += timedelta(hours=1)
    await loop.once()
    assert len(controller.seen) == 1


async def test_an_unreachable_controller_is_retried_without_logging_secrets(
    harness: Harness, time: Time, logged: list[MutableMapping[str, Any]]
):
    await ask(harness)
    address = f"127.0.0.1:{free_port()}"
    for down in (
        ResourceController(f"http://mooring:hunter2@{address}"),
        ResourceController(f"http://{address}", "hunter3"),
    ):
        await ScaleRequestDeliveryLoop(harness.fenced, down).once()
        time.at += timedelta(minutes=5)
    [tried] = await present(harness)
    assert tried.status is S.REQUESTED
    assert tried.error is not None
    assert "cannot be reached" in tried.error
    assert tried.attempts == 2
    assert "hunter" not in f"{logged} {tried}"


async def test_a_controller_that_does_not_answer_is_given_up_after_a_time_and_may_have_heard(
    harness: Harness, time: Time, controller: Controller, url: str
):
    await ask(harness)
    controller.slow = asyncio.Event()
    await ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url, seconds=0.2)).once()
    [tried] = await present(harness)
    assert tried.status is S.REQUESTED
    assert tried.error is not None
    assert "in time" in tried.error
    controller.slow.set()
    assert tried.next_attempt_at is not None
    time.at = tried.next_attempt_at
    await ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url)).once()
    assert [each.status for each in await present(harness)] == [S.DELIVERED]
    # Asked twice under one key, nodes were made once.
    assert len(controller.made) == 1


async def test_several_are_delivered_side_by_side(harness: Harness, time: Time, controller: Controller, url: str):
    for number in range(10):
        await ask(harness, template=f"t{number}")
    loop = ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url))
    while await loop.once():
        pass
    assert len(controller.made) == 10
    assert {each.status for each in await present(harness)} == {S.DELIVERED}


async def test_hooks_are_called_once_and_their_errors_have_no_effect(
    harness: Harness, time: Time, controller: Controller, url: str, logged: list[MutableMapping[str, Any]]
):
    received: list[Any] = []

    def fails(_facts: object) -> None:
        raise OSError("no phone")

    installed = {"good": SimpleNamespace(scale_up=received.append), "bad": SimpleNamespace(scale_up=fails)}
    request = await ask(harness)
    found = hooks.with_method(installed, "scale_up")
    loop = ScaleRequestDeliveryLoop(harness.fenced, ResourceController(url), found)
    controller.answers = [503]
    await loop.once()
    [tried] = await present(harness)
    assert tried.next_attempt_at is not None
    time.at = tried.next_attempt_at
    await loop.once()
    assert [facts["id"] for facts in received] == [str(request.id)]
    assert any("'bad' raised OSError: no phone" in entry["event"] for entry in logged)
    assert [each.status for each in await present(harness)] == [S.DELIVERED]


async def test_a_hook_alone_takes_requests_and_without_hook_and_controller_they_stay(harness: Harness, time: Time):
    await ask(harness)
    assert not await ScaleRequestDeliveryLoop(harness.fenced, None).once()
    assert [each.status for each in await present(harness)] == [S.REQUESTED]
    received: list[Any] = []
    found = hooks.with_method({"own": SimpleNamespace(scale_up=received.append)}, "scale_up")
    await ScaleRequestDeliveryLoop(harness.fenced, None, found).once()
    assert [each.status for each in await present(harness)] == [S.DELIVERED]
    assert received[0]["node"]["boot_seconds"] == 600
