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

from mooring.api import agents
from mooring.api.hub import AgentHub
from mooring.coordination.signals import Signal
from mooring.model.images import MOST_REPORTED
from mooring.store.nodes import load
from mooring.store.tables import nodes
from mooring.wire.agent import PROTOCOL, FromAgent, Hello, Images, encode
from tests.api.test_hub import FACTS
from tests.store.databases import on_sqlite
from tests.store.harbour import Harbour

HELLO = Hello(protocol=PROTOCOL, facts=FACTS)


async def hold_conversation(harbour: Harbour, *said: FromAgent) -> list[dict[str, Any]]:
    """What the server sends to an agent of the node n1 that says this and goes."""
    credential = hashlib.sha256(b"secret").hexdigest()
    await harbour.database.write(lambda c: c.execute(update(nodes).values(credential_hash=credential)))
    app = FastAPI()
    app.include_router(agents.router(harbour.database, AgentHub(harbour.database, Signal())))
    sent: list[dict[str, Any]] = []

    def told() -> Iterator[dict[str, Any]]:
        yield {"type": "websocket.connect"}
        for message in said:
            yield {"type": "websocket.receive", "text": encode(message)}
        yield {"type": "websocket.disconnect", "code": 1000}

    messages = told()

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/api/agent/stream"
    headers = [(b"authorization", b"Bearer secret")]
    await app({"type": "websocket", "path": path, "headers": headers, "query_string": b""}, receive, send)
    return sent


@on_sqlite
async def test_an_agent_tells_the_licence_and_the_image_of_its_machine(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=8)
    machine = {"licence": "personal", "machine_image": "cml", "machine_image_version": "2.7"}
    await hold_conversation(harbour, replace(HELLO, facts=replace(FACTS, **machine)))
    async with harbour.database.read() as connection:
        [node] = await load(connection, [node_id])
    assert (node.licence, node.machine_image, node.machine_image_version) == ("personal", "cml", "2.7")
    before = node.generation
    await hold_conversation(harbour, HELLO)
    row = await harbour.node_row(node_id)
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
async def test_what_an_agent_says_of_its_machine_is_checked_and_then_fixed(harbour: Harbour, second: Hello):
    node_id = await harbour.node("n1", cpu=8)
    sent = await hold_conversation(harbour, HELLO, second)
    assert sent[-1]["type"] == "websocket.close"
    assert (await harbour.node_row(node_id)).agent_version == FACTS.agent_version
    assert await harbour.findings() == []


@on_sqlite
@pytest.mark.parametrize("asked", ["by_credential", "connected"])
async def test_an_agent_comes_again_where_the_database_does_not_answer(
    harbour: Harbour, asked: str, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: Any, **__: Any) -> None:
        raise NoConnectionFree

    await harbour.node("n1", cpu=8)
    monkeypatch.setattr(f"mooring.store.nodes.{asked}", refuse)
    sent = await hold_conversation(harbour, HELLO)
    assert [(message["type"], message.get("code")) for message in sent] == [
        ("websocket.accept", None),
        ("websocket.close", 1013),
    ]


@on_sqlite
async def test_nothing_goes_on_for_an_agent_that_left(harbour: Harbour):
    await harbour.node("n1", cpu=8)
    before = asyncio.all_tasks()
    await hold_conversation(harbour, HELLO)
    assert asyncio.all_tasks() == before


@on_sqlite
async def test_an_agent_tells_its_images(harbour: Harbour):
    node_id = await harbour.node("n1", cpu=8)
    await hold_conversation(harbour, HELLO, Images(images={"docker.io/library/nginx:1": 7}))
    async with harbour.database.read() as connection:
        [node] = await load(connection, [node_id])
    assert node.images == {"docker.io/library/nginx:1": 7}


@on_sqlite
@pytest.mark.parametrize(
    "images",
    [
        pytest.param({f"localhost/i:{number}": 1 for number in range(MOST_REPORTED + 1)}, id="too many"),
        pytest.param({"localhost/" + "i" * 5000: 1}, id="a name without end"),
        pytest.param({"a\x00b": 1}, id="no name"),
        pytest.param({"localhost/i:1": -1}, id="less than nothing"),
        pytest.param({"localhost/i:1": 2**63}, id="more than there is"),
    ],
)
async def test_images_that_cannot_be_are_refused(harbour: Harbour, images: dict[str, int]):
    node_id = await harbour.node("n1", cpu=8)
    sent = await hold_conversation(harbour, HELLO, Images(images=images))
    assert sent[-1]["type"] == "websocket.close"
    assert (await harbour.node_row(node_id)).images is None
