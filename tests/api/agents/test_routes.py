"""The stream of an agent, as the server takes it."""

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from msgspec.structs import replace
from sqlalchemy import update
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from mooring.api.agents import routes
from mooring.api.agents.hub import AgentHub
from mooring.coordination.signals import Signal
from mooring.model.workloads.images import MAX_REPORTED_IMAGES
from mooring.store.nodes.nodes import load
from mooring.store.tables import nodes
from mooring.wire.agents.agent_protocol import PROTOCOL, FromAgent, Hello, Images, encode
from tests.api.agents.test_hub import FACTS
from tests.store.databases import on_sqlite
from tests.store.harness import Harness

HELLO = Hello(protocol=PROTOCOL, facts=FACTS)


async def hold_conversation(harness: Harness, *said: FromAgent) -> list[dict[str, Any]]:
    """The messages that the server sends to an agent of node n1 that sends this and disconnects."""
    credential = hashlib.sha256(b"secret").hexdigest()
    await harness.database.write(lambda c: c.execute(update(nodes).values(credential_hash=credential)))
    app = FastAPI()
    app.include_router(routes.router(harness.database, AgentHub(harness.database, Signal())))
    sent: list[dict[str, Any]] = []

    def received() -> Iterator[dict[str, Any]]:
        yield {"type": "websocket.connect"}
        for message in said:
            yield {"type": "websocket.receive", "text": encode(message)}
        yield {"type": "websocket.disconnect", "code": 1000}

    messages = received()

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/api/agent/stream"
    headers = [(b"authorization", b"Bearer secret")]
    await app({"type": "websocket", "path": path, "headers": headers, "query_string": b""}, receive, send)
    return sent


@on_sqlite
async def test_an_agent_reports_the_licence_and_the_image_of_its_machine(harness: Harness):
    node_id = await harness.node("n1", cpu=8)
    machine = {"licence": "personal", "machine_image": "cml", "machine_image_version": "2.7"}
    await hold_conversation(harness, replace(HELLO, facts=replace(FACTS, **machine)))
    async with harness.database.read() as connection:
        [node] = await load(connection, [node_id])
    assert (node.licence, node.machine_image, node.machine_image_version) == ("personal", "cml", "2.7")
    before = node.generation
    await hold_conversation(harness, HELLO)
    row = await harness.node_row(node_id)
    assert (row.licence, row.machine_image, row.generation) == (None, None, before + 1)


@on_sqlite
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(replace(HELLO, protocol=PROTOCOL + 1), id="of another protocol"),
        pytest.param(replace(HELLO, facts=replace(FACTS, capacity={"cpu": -1})), id="with less than nothing"),
        pytest.param(replace(HELLO, facts=replace(FACTS, licence="x" * 64)), id="with a licence without end"),
        pytest.param(replace(HELLO, facts=replace(FACTS, address="1.2.3.4,x")), id="with an address that is none"),
    ],
)
async def test_the_facts_that_an_agent_reports_are_validated(harness: Harness, second: Hello):
    node_id = await harness.node("n1", cpu=8)
    sent = await hold_conversation(harness, HELLO, second)
    assert sent[-1]["type"] == "websocket.close"
    assert (await harness.node_row(node_id)).agent_version == FACTS.agent_version
    assert await harness.findings() == []


@on_sqlite
@pytest.mark.parametrize("asked", ["by_credential", "connected"])
async def test_an_agent_comes_again_where_the_database_does_not_answer(
    harness: Harness, asked: str, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: Any, **__: Any) -> None:
        raise NoConnectionFree

    await harness.node("n1", cpu=8)
    monkeypatch.setattr(f"mooring.store.nodes.nodes.{asked}", refuse)
    sent = await hold_conversation(harness, HELLO)
    assert [(message["type"], message.get("code")) for message in sent] == [
        ("websocket.accept", None),
        ("websocket.close", 1013),
    ]


@on_sqlite
async def test_no_background_work_remains_for_a_disconnected_agent(harness: Harness):
    await harness.node("n1", cpu=8)
    before = asyncio.all_tasks()
    await hold_conversation(harness, HELLO)
    assert asyncio.all_tasks() == before


@on_sqlite
async def test_an_agent_reports_its_images(harness: Harness):
    node_id = await harness.node("n1", cpu=8)
    await hold_conversation(harness, HELLO, Images(images={"docker.io/library/nginx:1": 7}))
    async with harness.database.read() as connection:
        [node] = await load(connection, [node_id])
    assert node.images == {"docker.io/library/nginx:1": 7}


@on_sqlite
@pytest.mark.parametrize(
    "images",
    [
        pytest.param({f"localhost/i:{number}": 1 for number in range(MAX_REPORTED_IMAGES + 1)}, id="too many"),
        pytest.param({"localhost/" + "i" * 5000: 1}, id="a name without end"),
        pytest.param({"a\x00b": 1}, id="no name"),
        pytest.param({"localhost/i:1": -1}, id="less than nothing"),
        pytest.param({"localhost/i:1": 2**63}, id="more than there is"),
    ],
)
async def test_images_that_cannot_be_are_refused(harness: Harness, images: dict[str, int]):
    node_id = await harness.node("n1", cpu=8)
    sent = await hold_conversation(harness, HELLO, Images(images=images))
    assert sent[-1]["type"] == "websocket.close"
    assert (await harness.node_row(node_id)).images is None
