"""Outputs on their way to the server: whatever happens to them, who reads them hears of the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import uuid4

from mooring.agent.connection.log_streams import LogStreams
from mooring.agent.connection.stream import Connection
from mooring.agent.runtimes.contract import Runtime
from mooring.model.errors import Unavailable
from mooring.wire.agents.agent_protocol import LogChunk, LogRequest
from tests.agent.builders import eventually


class Interrupted:
    """A runtime whose engine goes away in the middle of an output."""

    async def logs(self, *_: Any) -> AsyncIterator[bytes]:
        yield b"the beginning"
        raise Unavailable("the connection to the engine broke")


class Heard:
    def __init__(self) -> None:
        self.chunks: list[LogChunk] = []

    async def send(self, chunk: LogChunk) -> None:
        self.chunks.append(chunk)


async def test_an_output_that_breaks_off_ends_with_the_reason():
    streams, heard = LogStreams(lambda _: False), Heard()
    request = LogRequest(request_id=uuid4(), task_id=uuid4(), container="main", tail=None, follow=True)
    streams.open(request, [cast(Runtime, Interrupted())], cast(Connection, heard))
    await eventually(lambda: not len(streams))
    assert [(chunk.data, chunk.end, chunk.error) for chunk in heard.chunks] == [
        (b"the beginning", False, None),
        (b"", True, "the connection to the engine broke"),
    ]
