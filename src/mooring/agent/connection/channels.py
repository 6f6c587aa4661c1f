"""Open channels into this node's tasks, multiplexed over the agent's stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import structlog

from mooring.agent.access.commands import CommandNotStarted
from mooring.agent.connection.stream import Connection
from mooring.agent.runtimes.contract import AccessibleRuntime, Runtime, TaskChannel
from mooring.model.errors import Conflict, MooringError, NotFound, Unavailable
from mooring.wire.agents.agent_protocol import (
    ChannelData,
    ChannelEnd,
    ChannelOpen,
    ChannelResize,
    ChannelWindow,
    Dial,
)
from mooring.wire.agents.flow import Side

log = structlog.get_logger(__name__)

_MAX_CONCURRENT = 1000


class Channels:
    def __init__(self) -> None:
        self._open: dict[UUID, _Channel] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, message: ChannelOpen, runtimes: Iterable[Runtime], connection: Connection) -> None:
        """Open a channel. Every channel ends with a message that contains the reason."""
        if message.channel_id in self._open:
            return
        full = len(self._open) >= _MAX_CONCURRENT
        channel = _Channel(message, [each for each in runtimes if isinstance(each, AccessibleRuntime)], connection)
        self._open[message.channel_id] = channel
        channel.serving = asyncio.create_task(channel.refuse() if full else channel.serve())
        channel.serving.add_done_callback(lambda _: self._open.pop(message.channel_id, None))

    def take(self, message: ChannelData | ChannelWindow | ChannelResize | ChannelEnd) -> None:
        """Pass data to a channel without blocking, since other messages on the stream follow."""
        channel = self._open.get(message.channel_id)
        if channel is not None:
            channel.take(message)

    async def close(self) -> None:
        """Close all channels when the stream has ended."""
        serving = [channel.serving for channel in self._open.values() if channel.serving is not None]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


class _Channel:
    def __init__(self, message: ChannelOpen, runtimes: list[AccessibleRuntime], connection: Connection) -> None:
        self.serving: asyncio.Task[None] | None = None
        self._asked = message
        self._runtimes = runtimes
        self._connection = connection
        self._side = Side(_Link(message.channel_id, connection))
        self._size: tuple[int, int] | None = None
        self._resized = asyncio.Event()

    def take(self, message: ChannelData | ChannelWindow | ChannelResize | ChannelEnd) -> None:
        match message:
            case ChannelData():
                if not self._side.take(message.data, message.error):
                    self._side.end()
            case ChannelWindow():
                self._side.grant(message.bytes)
            case ChannelResize():
                self._size = message.rows, message.columns
                self._resized.set()
            case ChannelEnd():
                self._side.end()

    async def refuse(self) -> None:
        await self._end(
            code="too-many-channels", message=f"{_MAX_CONCURRENT} connections to tasks are already open on this node"
        )

    async def serve(self) -> None:
        """Transfer bytes until the task, the command or the peer ends."""
        try:
            exit_code = await self._until_over()
        except CommandNotStarted as problem:
            await self._end(exit_code=problem.exit_code, code=problem.code, message=problem.message)
        except MooringError as problem:
            await self._end(code=problem.code, message=problem.message)
        except OSError as problem:
            await self._end(code="channel-failed", message=f"the node failed to do this: {problem.strerror or problem}")
        except Exception:
            log.exception("a channel failed", task=str(self._asked.task_id))
            await self._end(code="channel-failed", message="the node failed to do this; see the log of its agent")
        else:
            await self._end(exit_code=exit_code)

    async def _until_over(self) -> int | None:
        reached = await self._reach()
        await self._connection.send(ChannelWindow(channel_id=self._asked.channel_id, bytes=0))
        sending_output = asyncio.create_task(self._send_output(reached))
        handing_in = asyncio.create_task(self._forward_input(reached))
        sizing = asyncio.create_task(self._follow_resizes(reached))
        hung_up = asyncio.create_task(self._side.ended.wait())
        try:
            await asyncio.wait({sending_output, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            if not sending_output.done():
                return None
            if isinstance(self._asked.purpose, Dial) and sending_output.exception() is None:
                # The command may have closed its output but still read input.
                await asyncio.wait({handing_in, hung_up}, return_when=asyncio.FIRST_COMPLETED)
            return sending_output.result()
        finally:
            tasks = (sending_output, handing_in, sizing, hung_up)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await reached.close()

    async def _reach(self) -> TaskChannel:
        missing: MooringError = Conflict("tasks of this runtime do not support this", code="not-reachable")
        for runtime in self._runtimes:
            try:
                return await runtime.reach(self._asked.task_id, self._asked.container, self._asked.purpose)
            except NotFound as problem:
                missing = problem
        raise missing

    async def _send_output(self, reached: TaskChannel) -> int | None:
        while (piece := await reached.read()) is not None:
            await self._side.write(*piece)
        await self._side.write(b"")
        return await reached.exit_code()

    async def _forward_input(self, reached: TaskChannel) -> None:
        while (piece := await self._side.read()) is not None:
            await reached.write(piece[0])
        # A user who detaches or loses the connection does not end the input of the task.
        if self._side.complete:
            await reached.write(b"")

    async def _follow_resizes(self, reached: TaskChannel) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            if self._size is not None:
                await reached.resize(*self._size)

    async def _end(self, **how: Any) -> None:
        with contextlib.suppress(Unavailable):
            await self._connection.send(ChannelEnd(channel_id=self._asked.channel_id, **how))


class _Link:
    def __init__(self, channel_id: UUID, connection: Connection) -> None:
        self._channel_id = channel_id
        self._connection = connection

    async def data(self, data: bytes, error: bool) -> None:
        await self._connection.send(ChannelData(channel_id=self._channel_id, data=data, error=error))

    async def window(self, count: int) -> None:
        await self._connection.send(ChannelWindow(channel_id=self._channel_id, bytes=count))
