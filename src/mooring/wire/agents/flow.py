"""Flow control of a way in: each side says how many bytes it takes, so that a slow reader holds up nobody else."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from mooring.wire.agent import CHANNEL_WINDOW

PIECE_BYTES = 32 * 1024
"""Of one message at most: others on the same stream wait for no more than that."""


class Link(Protocol):
    """How a side's messages get to the other one."""

    async def data(self, data: bytes, error: bool) -> None: ...

    async def window(self, count: int) -> None: ...


class Side:
    """One side of a link. What comes from the other one is handed in by `take`, `grant` and `end`, which never wait."""

    def __init__(self, link: Link) -> None:
        self.ended = asyncio.Event()
        """The other side is gone, or has said that it is over."""
        self._link = link
        self._credit = CHANNEL_WINDOW
        self._room = asyncio.Event()
        self._window = CHANNEL_WINDOW
        self._arrived: deque[tuple[bytearray, bool]] = deque()
        self._arrival = asyncio.Event()
        self._complete = False
        self._consumed = 0

    async def read(self) -> tuple[bytes, bool] | None:
        """What has come, and whether it is standard error; None: nothing more will."""
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
        """Send as the other side takes it; none at all: nothing more will come. Lost where nobody reads any more."""
        if not data:
            if not self.ended.is_set():
                await self._link.data(b"", False)
            return
        while data and not self.ended.is_set():
            if self._credit <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            piece = data[: min(self._credit, PIECE_BYTES)]
            data = data[len(piece) :]
            self._credit -= len(piece)
            await self._link.data(piece, error)

    def take(self, data: bytes, error: bool) -> bool:
        """Keep what the other side has sent; False where that is more than it was allowed."""
        if not data:
            self._complete = True
        elif self._complete or len(data) > self._window:
            return False
        else:
            self._window -= len(data)
            # Many small pieces together: a byte each would take a hundred times its room.
            if self._arrived and self._arrived[-1][1] is error and len(self._arrived[-1][0]) < PIECE_BYTES:
                self._arrived[-1][0].extend(data)
            else:
                self._arrived.append((bytearray(data), error))
        self._arrival.set()
        return True

    def grant(self, count: int) -> None:
        self._credit += max(count, 0)
        self._room.set()

    def end(self) -> None:
        """Nothing comes any more and nothing is taken; what has come before can still be read."""
        self.ended.set()
        self._arrival.set()
        self._room.set()
