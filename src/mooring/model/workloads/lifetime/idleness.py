"""The idle timeout of sessions: warning and end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from mooring.model.calendar.durations import format_duration
from mooring.model.reasons import Reason

IDLE_TIMEOUT = "idle-timeout"
"""The reason code of an idle timeout."""
MIN_IDLE_SECONDS = 60
"""The minimum: activity is measured once a minute."""
_ACTIVE_MILLICORES = 20
_ACTIVE_BYTES_PER_SECOND = 1024
"""Activity below this counts as idle: an unused server still logs a line or answers a health check now and then."""
_WARNED_AFTER = 0.8


class Step(StrEnum):
    NONE = "none"
    WARN = "warn"
    FORGIVE = "forgive"
    """It was active again after the warning."""
    END = "end"


@dataclass(frozen=True, slots=True)
class Idleness:
    """The idleness of a session: its start, the timeout, and the time of the warning."""

    since: datetime
    timeout: timedelta
    warned_at: datetime | None = None

    @property
    def warned(self) -> bool:
        """Of this idle period, not of an earlier one."""
        return self.warned_at is not None and self.warned_at >= self._warned_from

    @property
    def ends_at(self) -> datetime:
        """The end if it stays idle; a late warning still leaves the rest of the time."""
        end = self.since + self.timeout
        return max(end, self.warned_at + self.timeout * (1 - _WARNED_AFTER)) if self.warned and self.warned_at else end

    def step(self, known_until: datetime) -> Step:
        """Return the action that is due. Only time up to the last measurement (`known_until`) counts as idle."""
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
    return Reason(IDLE_TIMEOUT, f"Its tasks were idle{how_long}", "idleness", "never")
