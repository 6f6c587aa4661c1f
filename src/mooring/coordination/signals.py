"""Signals only wake: whoever misses one finds the work in the tables at its next turn."""

from __future__ import annotations

import asyncio


class Signal:
    """Something was committed. Any number may wait; every waiter sees a signal that came since it last looked."""

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
        """Until a signal after `seen` (default: after now) or the timeout; the count to hand in next time."""
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
