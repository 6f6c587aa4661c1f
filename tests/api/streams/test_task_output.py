"""Output on its way through the server: whoever does not read holds up nobody, and does not fill the memory."""

from uuid import UUID

import pytest

from mooring.api import task_output as module
from mooring.api.agent_session import AgentSession
from mooring.api.task_output import TaskOutput
from mooring.model.errors import Unavailable
from mooring.wire.agent import FromServer, LogChunk, LogRequest


@pytest.mark.parametrize("size", [0, 1000])
async def test_of_one_who_does_not_read_only_so_much_is_kept(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_LONGEST_UNREAD_BYTES", 10_000)
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
