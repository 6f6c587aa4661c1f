"""When a session that nobody uses is told so, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from mooring.model.durations import format_duration
from mooring.model.reasons import Reason

IDLE_TIMEOUT = "idle-timeout"
"""The code of the reason why an idle session ends."""
LEAST_SECONDS = 60
"""More often than once a minute nobody can tell whether a task is idle."""
_ACTIVE_MILLICORES = 20
_ACTIVE_BYTES_PER_SECOND = 1024
"""A server that nobody talks to still writes a line or answers a question about its health now and then."""
_WARNED_AFTER = 0.8


class Step(StrEnum):
    NONE = "none"
    WARN = "warn"
    FORGIVE = "forgive"
    """It was warned, and then did something."""
    END = "end"


@dataclass(frozen=True, slots=True)
class Idleness:
    """Of a session: since when it does nothing, for how long it may, and whether it was told."""

    since: datetime
    timeout: timedelta
    warned_at: datetime | None = None

    @property
    def warned(self) -> bool:
        """Of this idleness, not of one before."""
        return self.warned_at is not None and self.warned_at >= self._warned_from

    @property
    def ends_at(self) -> datetime:
        """If it goes on like this; whoever is told late still has the rest of the time."""
        end = self.since + self.timeout
        return max(end, self.warned_at + self.timeout * (1 - _WARNED_AFTER)) if self.warned and self.warned_at else end

    def step(self, known_until: datetime) -> Step:
        """What is due by what is known until then: that nobody has measured anything proves nothing."""
        if self.warned:
            return Step.END if known_until >= self.ends_at else Step.NONE
        if known_until >= self._warned_from:
            return Step.WARN
        return Step.NONE if self.warned_at is None else Step.FORGIVE

    @property
    def _warned_from(self) -> datetime:
        return self.since + self.timeout * _WARNED_AFTER


def is_active(cpu_millicores: int, bytes_per_second: int) -> bool:
    return cpu_millicores >= _ACTIVE_MILLICORES or bytes_per_second >= _ACTIVE_BYTES_PER_SECOND


def idle_for_too_long(timeout_seconds: int | None) -> Reason:
    how_long = "" if timeout_seconds is None else f" for {format_duration(timeout_seconds)}"
    return Reason(IDLE_TIMEOUT, f"Its tasks did nothing{how_long}", "idleness", "never")
