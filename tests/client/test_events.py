"""Events and batches through both clients, over connections that break."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from mooring.client import AsyncClient, Client, event_stream
from mooring.model.errors import EventsPurged, MooringError, TooManyAttempts, Unavailable
from mooring.wire.workloads.containers import ContainerRequest
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.client.fake_server import FakeServer, Refusal, event_view

REQUEST = WorkloadRequest(name="hello", containers=[ContainerRequest(command=["echo", "hello"])])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def events(kind: str, server: FakeServer, number: int, *args: Any, **kwargs: Any) -> list[str]:
    """The cursors of the first so many."""
    if kind == "sync":
        with Client(server.url, token=server.token()) as client:
            return [event.cursor for event in islice(client.events(*args, **kwargs), number)]
    found: list[str] = []
    async with AsyncClient(server.url, token=server.token()) as client:
        async for event in client.events(*args, **kwargs):
            found.append(event.cursor)
            if len(found) == number:
                break
    return found


async def call(kind: str, server: FakeServer, operation: str, *args: Any, **kwargs: Any) -> Any:
    if kind == "sync":
        with Client(server.url, token=server.token()) as client:
            return getattr(client, operation)(*args, **kwargs)
    async with AsyncClient(server.url, token=server.token()) as client:
        return await getattr(client, operation)(*args, **kwargs)


async def test_a_broken_stream_continues_with_the_missed_events(server: FakeServer, kind: str) -> None:
    server.events = [event_view(number) for number in range(1, 8)]
    server.events_per_connection = 2
    assert await events(kind, server, 7, expand=True, workload="w") == [f"7-{number}" for number in range(1, 8)]
    asked = server.requests("GET", "/api/events/stream")
    assert [one.query.get("since") for one in asked] == [None, "7-2", "7-4", "7-6"]
    assert all((one.query["expand"], one.query["workload"]) == ("true", "w") for one in asked)


async def test_purged_events_raise_an_error(server: FakeServer, kind: str) -> None:
    server.events = [event_view(1)]
    with pytest.raises(EventsPurged, match="forgotten"):
        await events(kind, server, 1, "0-0")


async def test_connecting_to_a_server_that_never_answered_is_given_up(server: FakeServer, kind: str) -> None:
    server.refuse["GET", "/api/events/stream"] = Refusal(503, "unavailable", "no")
    with pytest.raises(Unavailable):
        await events(kind, server, 1)


def test_errors_that_a_new_connection_cures_are_waited_out() -> None:
    reader = event_stream.EventReader("http://there", "7-1")
    message = f"id: 7-2\ndata: {event_view(2).model_dump_json()}\n\n".encode()
    assert [*reader.read(message[:30])] == []
    reader.begin()
    assert reader.cursor == "7-1"
    assert [event.cursor for event in reader.read(message)] == ["7-2"]
    assert reader.cursor == "7-2"
    assert reader.pause_seconds(TooManyAttempts("slowly", details={"retry_after_seconds": 7})) == 7
    reader.pause_seconds(None)
    reader.pause_seconds(Unavailable("gone"))
    with pytest.raises(MooringError, match="no such thing"):
        reader.pause_seconds(MooringError("no such thing"))


async def test_a_batch_has_a_key_of_its_own_and_is_sent_again_with_it(server: FakeServer, kind: str) -> None:
    server.drops = 1
    answer = await call(kind, server, "submit_batch", [REQUEST, REQUEST.model_copy(update={"name": "taken"})])
    assert [item.error and item.error.code for item in answer.workloads] == [None, "name-taken"]
    first, again = server.requests("POST", "/api/workloads/batch")
    assert first.key is not None
    assert (first.key, first.body) == (again.key, again.body)
    assert first.body["workloads"][0] == {"name": "hello", "containers": [{"command": ["echo", "hello"]}]}
    await call(kind, server, "submit_batch", [REQUEST])
    assert server.last("POST", "/api/workloads/batch").key != first.key


async def test_a_submission_whose_answer_was_lost_is_sent_again_with_its_key(server: FakeServer, kind: str) -> None:
    server.drops = 1
    assert (await call(kind, server, "submit", REQUEST, key="mine")).name == "hello"
    assert [one.key for one in server.requests("POST", "/api/workloads")] == ["mine", "mine"]


async def test_a_request_without_a_key_is_not_sent_twice(server: FakeServer, kind: str) -> None:
    server.add("web")
    server.drops = 1
    with pytest.raises(Unavailable):
        await call(kind, server, "scale", "web", 2)
    assert len(server.requests("POST", "/api/workloads/web/scale")) == 1
