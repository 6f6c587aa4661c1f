"""The event stream of real servers under load, over connections that break and a server that is killed."""

from __future__ import annotations

import threading
from itertools import takewhile

import pytest

from mooring.client import event_stream
from mooring.wire.cluster.events import EventView
from mooring.wire.workloads.workloads import WorkloadRequest
from tests.servers import free_port
from tests.system.conftest import Servers
from tests.system.servers import Server, eventually

BATCHES, SIZE = 6, 20


def _request(name: str) -> WorkloadRequest:
    container = {"image": "nginx:latest", "resources": {"cpu": "10m"}}
    return WorkloadRequest.model_validate({"name": name, "containers": [container]})


def _is_the_last(event: EventView) -> bool:
    return (event.noun, event.workload, event.kind) == ("workload", "last", "RUNNING")


def _follow(server: Server, cursor: str, found: list[EventView], ready: threading.Event) -> None:
    """Everything until the workload `last` runs, each time over a connection that is left after a few events."""
    with server.client() as client:
        ready.set()
        while not (found and _is_the_last(found[-1])):
            for number, event in enumerate(client.events(cursor, expand=True)):
                found.append(event)
                cursor = event.cursor
                if number == 40 or _is_the_last(event):
                    break


def test_an_event_stream_has_no_gap_or_repeat_during_writes(
    servers: Servers, database_flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_FIRST_PAUSE_SECONDS", 0.05)
    server = servers.start("--simulate", "5", "--no-agent", *database_flags)
    found: list[EventView] = []
    ready = threading.Event()
    with server.client() as client:
        start = client.event_page(limit=1000).next
        following = threading.Thread(target=_follow, args=(server, start, found, ready), daemon=True)
        following.start()
        assert ready.wait(180)
        for number in range(BATCHES):
            answer = client.submit_batch([_request(f"w{number}-{index}") for index in range(SIZE)])
            assert answer.refused == 0
        eventually(lambda: client.workloads(status="RUNNING", limit=1).total == BATCHES * SIZE)
        client.submit(_request("last"))
        following.join(180)
        assert not following.is_alive()
        listed: list[EventView] = []
        page = client.event_page(start, limit=1000, expand=True)
        listed += page.events
        while page.more:
            page = client.event_page(page.next, limit=1000, expand=True)
            listed += page.events
    until = found[-1].cursor
    expected = [event.cursor for event in takewhile(lambda event: event.cursor != until, listed)] + [until]
    assert [event.cursor for event in found] == expected
    running = [event.workload for event in found if (event.noun, event.kind) == ("workload", "RUNNING")]
    assert len(running) == len(set(running)) == BATCHES * SIZE + 1
    assert {event.node is not None for event in found if event.noun == "task"} == {True}


@pytest.mark.slow
def test_a_client_reconnects_after_a_server_crash_and_streams_end_when_the_server_stops(servers: Servers) -> None:
    server = servers.start("--simulate", "2", "--no-agent", "--port", str(free_port()))
    with server.client() as client:
        # From before the work: the stream is opened when its first event is asked for.
        events = client.events(client.event_page(limit=1000).next, expand=True)
        client.submit(_request("before"))
        assert next(event.workload for event in events if event.workload) == "before"
        server.kill()
        server.start()
        client.submit(_request("after"))
        names = set()
        while "after" not in names:
            names.add(next(events).workload)
        assert server.stop() == 0
