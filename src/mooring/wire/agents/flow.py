"""Flow control of a channel: each side grants the bytes that it accepts, so that a slow reader delays no other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from mooring.wire.agents.agent_protocol import CHANNEL_WINDOW

PIECE_BYTES = 32 * 1024
"""Maximum size of one message, which bounds the delay of others on the same stream."""


class Link(Protocol):
    """The transport that carries the messages of one side to the other."""

    async def data(self, data: bytes, error: bool) -> None: ...

    async def window(self, count: int) -> None: ...


class Side:
    """One side of a link. Messages of the other side arrive through `take`, `grant` and `end`, which never wait."""

    def __init__(self, link: Link) -> None:
        self.ended = asyncio.Event()
        """The other side is gone, or has ended the channel."""
        self._link = link
        self._credit = CHANNEL_WINDOW
        self._window_opened = asyncio.Event()
        self._window = CHANNEL_WINDOW
        self._arrived: deque[tuple[bytearray, bool]] = deque()
        self._arrival = asyncio.Event()
        self._complete = False
        self._consumed = 0

    @property
    def complete(self) -> bool:
        """The other side has ended its direction, rather than left."""
        return self._complete

    async def read(self) -> tuple[bytes, bool] | None:
        """Return the next bytes, and whether they are standard error; None at the end."""
        while not self._arrived:
            if self._complete or self.ended.is_set():
                return None
            self._arrival.clear()
            await self._arrival.wait()
        data, error = self._arrived.popleft()
        self._consumed += len(data)
        if self._consumed >= CHANNEL_WINDOW // 2 and not self._complete and not self.ended.is_set():
            consumed, self._consumed = self._consumed, 0
            self._window += consumed
            await self._link.window(consumed)
        return bytes(data), error

    async def write(self, data: bytes, error: bool = False) -> None:
        """Send as the other side grants; empty: end of this direction. Discarded if the other side is gone."""
        if not data:
            if not self.ended.is_set():
                await self._link.data(b"", False)
            return
        while data and not self.ended.is_set():
            if self._credit <= 0:
                self._window_opened.clear()
                await self._window_opened.wait()
                continue
            piece = data[: min(self._credit, PIECE_BYTES)]
            data = data[len(piece) :]
            self._credit -= len(piece)
            await self._link.data(piece, error)

    def take(self, data: bytes, error: bool) -> bool:
        """Queue received bytes; return False if they exceed the grant."""
        if not data:
            self._complete = True
        elif self._complete or len(data) > self._window:
            return False
        else:
            self._window -= len(data)
            # Many small pieces together: one byte in each would take a hundred times its memory.
            if self._arrived and self._arrived[-1][1] is error and len(self._arrived[-1][0]) < PIECE_BYTES:
                self._arrived[-1][0].extend(data)
            else:
                self._arrived.append((bytearray(data), error))
        self._arrival.set()
        return True

    def grant(self, count: int) -> None:
        self._credit += max(count, 0)
        self._window_opened.set()

    def end(self) -> None:
        """End the link: nothing more is received or sent; bytes received before can still be read."""
        self.ended.set()
        self._arrival.set()
        self._window_opened.set()
