"""Output on its way through the server: a slow reader neither blocks others nor fills the memory."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from mooring.api.agents.agent_session import AgentSession
from mooring.api.streams import task_output as module
from mooring.api.streams.task_output import TaskOutput
from mooring.model.errors import Conflict, Unavailable
from mooring.wire.agents.agent_protocol import FromServer, LogChunk, LogRequest


@pytest.mark.parametrize("size", [0, 1000])
async def test_output_buffered_for_a_slow_reader_is_bounded(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MAX_UNREAD_BYTES", 10_000)
    asked: list[LogRequest] = []

    async def send(message: FromServer) -> None:
        if isinstance(message, LogRequest):
            asked.append(message)
            output.take(session, LogChunk(request_id=message.request_id, data=b"first"))

    session = AgentSession(UUID(int=1), "n1", UUID(int=2), "hash", send)
    output = TaskOutput()
    reading = output.stream(session, UUID(int=3), "main", tail=None, follow=True)
    assert await anext(reading) == b"first"
    for _ in range(1000):
        output.take(session, LogChunk(request_id=asked[0].request_id, data=b"x" * size))
    [reader] = output._readers.values()
    assert reader.chunks.qsize() <= 21
    with pytest.raises(Unavailable, match="too slow"):
        async for _ in reading:
            pass


@pytest.mark.parametrize("options", [{"since": 5.0}, {"timestamps": True}])
async def test_times_need_an_agent_that_notes_them(options: dict[str, Any]):
    chunks = [LogChunk(request_id=UUID(int=0), data=b"as ever")]

    async def send(message: FromServer) -> None:
        if isinstance(message, LogRequest):
            for chunk in chunks:
                output.take(session, msgspec.structs.replace(chunk, request_id=message.request_id))

    session = AgentSession(UUID(int=1), "n1", UUID(int=2), "hash", send)
    output = TaskOutput()

    async def read() -> bytes:
        stream = output.stream(session, UUID(int=3), "main", tail=None, follow=False, **options)
        return b"".join([data async for data in stream])

    with pytest.raises(Conflict) as outdated:
        await read()
    assert outdated.value.code == "agent-outdated"
    chunks = [LogChunk(request_id=UUID(int=0), end=True, error="it has no times", code="no-times", times=True)]
    with pytest.raises(Conflict, match="it has no times") as untimed:
        await read()
    assert untimed.value.code == "no-times"
    chunks = [LogChunk(request_id=UUID(int=0), data=b"marked", end=True, times=True)]
    assert await read() == b"marked"
