"""Signals: notifications without content. A lost signal delays work until the next timer but never loses it."""

from __future__ import annotations

import asyncio


class Signal:
    """A commit signal for any number of waiters; each waiter sees signals sent since its last wait."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def send(self) -> None:
        self._count += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    @property
    def count(self) -> int:
        return self._count

    async def wait(self, timeout: float, seen: int | None = None) -> int:
        """Wait for a signal after `seen` (default: now) or the timeout. Return the count to pass as the next `seen`."""
        if seen is not None and seen != self._count:
            return self._count
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)
        return self._count
