"""The output of tasks, streamed from their agents to readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import UUID

from mooring.api.agents.agent_session import AgentSession
from mooring.model.errors import Conflict, Unavailable
from mooring.store.core.ids import new_id
from mooring.wire.agents.agent_protocol import LogCancel, LogChunk, LogRequest

_MAX_UNREAD_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 500
"""Approximate memory of a chunk besides its data."""


@dataclass(slots=True)
class _Reader:
    """A reader of a task's output. The stream never waits for it; its unread data is bounded."""

    session: AgentSession
    chunks: asyncio.Queue[LogChunk] = field(default_factory=asyncio.Queue)
    unread_bytes: int = 0
    cut_off: bool = False
    """It exceeded the bound: later data is dropped."""


class TaskOutput:
    def __init__(self) -> None:
        self._readers: dict[UUID, _Reader] = {}

    async def stream(
        self,
        session: AgentSession | None,
        task_id: UUID,
        container: str,
        *,
        tail: int | None,
        follow: bool,
        since: float | None = None,
        timestamps: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the output of the task. `session`: that of its node's agent, if it is connected here."""
        if session is None:
            raise Unavailable("the task's node is not connected to this server at the moment", code="agent-unreachable")
        request_id = new_id()
        reader = self._readers[request_id] = _Reader(session)
        try:
            await session.send(
                LogRequest(
                    request_id=request_id,
                    task_id=task_id,
                    container=container,
                    tail=tail,
                    follow=follow,
                    since=since,
                    timestamps=timestamps,
                )
            )
            timed = timestamps or since is not None
            while True:
                chunk = await reader.chunks.get()
                reader.unread_bytes -= len(chunk.data) + _CHUNK_BYTES
                if chunk.error and chunk.code == "no-times":
                    raise Conflict(f"the output cannot be read: {chunk.error}", code=chunk.code)
                if chunk.error:
                    raise Unavailable(f"the rest of the output cannot be read: {chunk.error}", code="logs-unavailable")
                if timed and not chunk.times:
                    raise Conflict(
                        "the agent of the task's node is too old to know the times of output: upgrade it, or ask"
                        " without since and timestamps",
                        code="agent-outdated",
                    )
                if chunk.data:
                    yield chunk.data
                if chunk.end:
                    return
        finally:
            del self._readers[request_id]
            if session.open:
                await session.send(LogCancel(request_id=request_id))

    def take(self, session: AgentSession, chunk: LogChunk) -> None:
        reader = self._readers.get(chunk.request_id)
        if reader is None or reader.session is not session or reader.cut_off:
            return
        reader.unread_bytes += len(chunk.data) + _CHUNK_BYTES
        reader.cut_off = reader.unread_bytes > _MAX_UNREAD_BYTES
        if reader.cut_off:
            chunk = LogChunk(request_id=chunk.request_id, end=True, error="the reader is too slow")
        reader.chunks.put_nowait(chunk)

    def end(self, session: AgentSession) -> None:
        """The agent's stream is closed: no more output arrives."""
        gone = LogChunk(request_id=session.node_id, end=True, error="the agent's connection was lost")
        for reader in self._readers.values():
            if reader.session is session:
                reader.chunks.put_nowait(gone)
