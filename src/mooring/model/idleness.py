"""When a session that nobody uses is told so, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

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
    """Of a session: since when it does nothing, until when that is known, and for how long it may."""

    since: datetime
    known_until: datetime
    timeout: timedelta
    warned_at: datetime | None = None

    @property
    def warned_from(self) -> datetime:
        return self.since + self.timeout * _WARNED_AFTER

    @property
    def ends_at(self) -> datetime:
        """If it goes on like this."""
        return self.since + self.timeout

    def step(self) -> Step:
        """What is due. Silence proves nothing: only what was measured counts."""
        warned = self.warned_at is not None and self.warned_at >= self.since
        if self.known_until >= self.ends_at and warned:
            return Step.END
        if self.known_until >= self.warned_from and not warned:
            return Step.WARN
        return Step.FORGIVE if self.warned_at is not None and not warned else Step.NONE


def is_active(cpu_millicores: int, bytes_per_second: int) -> bool:
    return cpu_millicores >= _ACTIVE_MILLICORES or bytes_per_second >= _ACTIVE_BYTES_PER_SECOND
