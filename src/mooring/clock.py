"""The one clock: the present instant in UTC, and seconds that only grow. A simulation puts its own in their place."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class _OfTheMachine:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


source: Clock = _OfTheMachine()


def now() -> datetime:
    return source.now()


def monotonic() -> float:
    """Seconds since some moment, whatever is done to the date meanwhile."""
    return source.monotonic()
