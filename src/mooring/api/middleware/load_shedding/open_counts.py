"""Counts of operations in progress by key: streams, channels and login attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable


class OpenCounts:
    def __init__(self) -> None:
        self._open: Counter[Hashable] = Counter()

    def open(self, key: Hashable, limit: int) -> Callable[[], None] | None:
        """Count one more operation and return the idempotent function that ends it; None if `limit` are open."""
        if self._open[key] >= limit:
            return None
        self._open[key] += 1
        closed = False

        def close() -> None:
            nonlocal closed
            if closed:
                return
            closed = True
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

        return close

    def __len__(self) -> int:
        """Return the number of open operations of all keys."""
        return self._open.total()
