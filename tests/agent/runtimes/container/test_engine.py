"""Responses of an engine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from mooring.agent.runtimes.container.engine import Engine

EVENTS = [{"name": "first", "of an image": "x" * 1_000_000}, {"name": "second"}]


@pytest.fixture
async def talkative(tmp_path: Path) -> AsyncIterator[Engine]:
    """An engine that has much to say about its containers."""

    async def tell(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for labels in EVENTS:
            await response.write(json.dumps({"Actor": {"Attributes": labels}}).encode() + b"\n")
        return response

    async def lose(_request: web.Request) -> web.Response:
        return web.json_response({"message": "inspecting container 1f: no such container 1f"}, status=500)

    app = web.Application()
    app.router.add_get("/{version}/events", tell)
    app.router.add_get("/{version}/containers/{name}/json", lose)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "e.sock")).start()
    engine = Engine(f"unix://{tmp_path}/e.sock")
    engine.docker.api_version = "v1.41"
    yield engine
    await engine.close()
    await runner.cleanup()


async def test_an_image_with_long_labels_does_not_interrupt_events(talkative: Engine):
    assert [labels["name"] async for labels in talkative.events("label")] == ["first", "second"]


async def test_a_container_removed_during_an_inspection_is_absent(talkative: Engine):
    assert await talkative.seen("short-lived") is None
