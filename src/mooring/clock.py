"""The clock: the present instant in UTC, and monotonic seconds. Tests replace both."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

AHEAD = "MOORING_CLOCK_AHEAD"
"""An environment variable for tests alone: a file with the seconds by which the date is ahead of the machine's, now
and in every process that has it; what only counts seconds is as always."""


class Clock(Protocol):
    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class _SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ShiftedClock(_SystemClock):
    """The machine's clock with a date that tests move."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(self._file.read_text()))

    def move_to(self, instant: datetime) -> None:
        """Move the date for all processes that read the file."""
        ahead = (instant - datetime.now(UTC)).total_seconds()
        written = self._file.with_suffix(".new")
        written.write_text(str(ahead))
        written.replace(self._file)


source: Clock = ShiftedClock(Path(os.environ[AHEAD])) if AHEAD in os.environ else _SystemClock()


def now() -> datetime:
    return source.now()


def monotonic() -> float:
    """Seconds since an arbitrary moment, unaffected by changes of the date."""
    return source.monotonic()
