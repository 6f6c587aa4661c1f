"""The bytes that the process buffers for requests that are not finished: bounded in all, and shared between flows."""

from __future__ import annotations

from collections import Counter

from mooring.model.errors import TooManyAttempts

_RETRY_SECONDS = 2
_SHARE = 8
_SMALL_SHARE = 256


class ByteBudget:
    """A flow may hold an eighth of all bytes, and once half of them are taken no more than a small body.

    So a few flows with large bodies cannot keep out the small bodies of many others.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self._held: Counter[str] = Counter()
        self._all_held = 0

    @property
    def held_bytes(self) -> int:
        return self._all_held

    def reservation(self, key: str) -> Reservation:
        return Reservation(self, key)

    def _resize(self, key: str, old: int, new: int) -> None:
        """Raise TooManyAttempts where a reservation cannot grow; then it stays as it is."""
        grown = new - old
        allowed = self._total // (_SMALL_SHARE if self._all_held + grown > self._total // 2 else _SHARE)
        if grown > 0 and (self._held[key] + grown > allowed or self._all_held + grown > self._total):
            raise TooManyAttempts(
                f"your unfinished requests hold {self._held[key]} bytes of the server's memory, and with {grown} more "
                f"would exceed your share of {allowed} bytes; finish these first",
                code="too-many-bytes",
                details={"retry_after_seconds": _RETRY_SECONDS},
            )
        self._all_held += grown
        self._held[key] += grown
        if not self._held[key]:
            del self._held[key]


class Reservation:
    """The bytes of one request or WebSocket."""

    def __init__(self, budget: ByteBudget, key: str) -> None:
        self._budget = budget
        self._key = key
        self._bytes = 0

    def resize(self, to_bytes: int) -> None:
        self._budget._resize(self._key, self._bytes, to_bytes)
        self._bytes = to_bytes

    def release(self) -> None:
        """Idempotent."""
        self.resize(0)
