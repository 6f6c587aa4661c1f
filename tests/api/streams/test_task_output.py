"""Output on its way through the server: a slow reader neither blocks others nor fills the memory."""

from uuid import UUID

import pytest

from mooring.api.agents.agent_session import AgentSession
from mooring.api.streams import task_output as module
from mooring.api.streams.task_output import TaskOutput
from mooring.model.errors import Unavailable
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
