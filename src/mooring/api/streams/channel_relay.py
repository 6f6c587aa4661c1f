"""Relay of channels between the agents of tasks and the clients that opened them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from mooring.api.agents.agent_session import AgentSession
from mooring.model.errors import Conflict, InvalidInput, MooringError, NotFound, Unavailable
from mooring.store.core.ids import new_id
from mooring.wire.agents.agent_protocol import (
    CHANNELS_SINCE,
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    ChannelResize,
    ChannelWindow,
    Purpose,
)
from mooring.wire.agents.flow import Side

_KINDS: dict[str, type[MooringError]] = {
    "not-found": NotFound,
    "unknown-container": NotFound,
    "invalid-input": InvalidInput,
    "invalid-path": InvalidInput,
    "files-refused": InvalidInput,
    "unavailable": Unavailable,
    "agent-lost": Unavailable,
    "server-stopping": Unavailable,
    "port-not-answering": Unavailable,
    "too-many-channels": Unavailable,
}
"""Errors by the codes of agents; all others are conflicts with the present state."""


class Channel:
    """The server's side of a channel; `side` carries the bytes."""

    def __init__(self, session: AgentSession, channel_id: UUID) -> None:
        self.session = session
        self.end_message: ChannelEnd | None = None
        self.side = Side(_Link(session, channel_id))
        self._channel_id = channel_id
        self._decided = asyncio.Event()

    async def opened(self) -> None:
        """Return when the task is reached; raise the problem otherwise."""
        await self._decided.wait()
        if (problem := self.problem) is not None:
            raise problem

    @property
    def problem(self) -> MooringError | None:
        """The error that the channel ended with; None if it ended well or is open."""
        if self.end_message is None or self.end_message.code is None or self.end_message.exit_code is not None:
            return None
        return _KINDS.get(self.end_message.code, Conflict)(self.end_message.message, code=self.end_message.code)

    async def resize(self, rows: int, columns: int) -> None:
        if self.end_message is None:
            await self.session.send(ChannelResize(channel_id=self._channel_id, rows=rows, columns=columns))

    async def close(self) -> None:
        """The client has disconnected, so no error can be delivered."""
        if self.end_message is None and self.session.open:
            self.end(ChannelEnd(channel_id=self._channel_id))
            await self.session.send(ChannelEnd(channel_id=self._channel_id))

    def take(self, message: ChannelData | ChannelWindow | ChannelEnd) -> None:
        match message:
            case ChannelData():
                if not self.side.take(message.data, message.error):
                    self.lost("the task's node sent more than the receiver allows")
            case ChannelWindow():
                self.side.grant(message.bytes)
            case ChannelEnd():
                self.end(message)
        self._decided.set()

    def lost(self, message: str, code: str = "agent-lost") -> None:
        self.end(ChannelEnd(channel_id=self._channel_id, code=code, message=message))

    def end(self, message: ChannelEnd) -> None:
        if self.end_message is None:
            self.end_message = message
        self.side.end()
        self._decided.set()


def able(session: AgentSession | None) -> AgentSession:
    """Return the session through which the tasks of a node can be reached. Raise Unavailable if there is none."""
    if session is None:
        raise Unavailable("the task's node is not connected to this server at the moment", code="agent-unreachable")
    if session.protocol < CHANNELS_SINCE:
        raise Unavailable("the agent of the task's node is too old for this: upgrade it", code="agent-outdated")
    return session


class TaskChannels:
    def __init__(self) -> None:
        self._open: dict[UUID, Channel] = {}

    @asynccontextmanager
    async def open(
        self, session: AgentSession | None, task_id: UUID, container: str | None, purpose: Purpose
    ) -> AsyncIterator[Channel]:
        """Yield a channel; `session`: that of the task's node, if its agent is connected here."""
        session = able(session)
        channel_id = new_id()
        channel = self._open[channel_id] = Channel(session, channel_id)
        try:
            await session.send(
                ChannelOpen(channel_id=channel_id, task_id=task_id, container=container, purpose=purpose)
            )
            yield channel
        finally:
            del self._open[channel_id]
            await channel.close()

    def take(self, session: AgentSession, message: ChannelData | ChannelWindow | ChannelEnd) -> None:
        channel = self._open.get(message.channel_id)
        if channel is not None and channel.session is session:
            channel.take(message)

    def end(self, session: AgentSession) -> None:
        """The agent's stream is closed: no more frames arrive."""
        for channel in self._open.values():
            if channel.session is session:
                channel.lost("the connection to the task's node was lost")

    def close_channels(self) -> None:
        """End every channel because the server is stopping."""
        for channel in self._open.values():
            channel.lost("the server is stopping; open the channel again", code="server-stopping")


class _Link:
    def __init__(self, session: AgentSession, channel_id: UUID) -> None:
        self._session = session
        self._channel_id = channel_id

    async def data(self, data: bytes, error: bool) -> None:
        await self._session.send(ChannelData(channel_id=self._channel_id, data=data, error=error))

    async def window(self, count: int) -> None:
        await self._session.send(ChannelWindow(channel_id=self._channel_id, bytes=count))
