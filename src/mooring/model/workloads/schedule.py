"""The schedule of a workload: when it may start, how long its tasks may take, and how often they are tried."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from mooring.model.errors import InvalidInput
from mooring.model.workloads.arrays import Array
from mooring.model.workloads.dependencies import Condition, OnDependencyFailure

SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH")
"""The signals that a task may be sent as a warning."""
_NOTICE = re.compile(rf"(?:SIG)?({'|'.join(SIGNALS)})(?:@(\d{{1,7}}))?", re.ASCII)
_NOTICE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Notice:
    """The signal that a task is sent this many seconds before its time limit."""

    signal: str
    seconds: int


def parse_notice(written: str) -> Notice:
    """`SIGNAL[@SECONDS]`."""
    match = _NOTICE.fullmatch(written.upper())
    if match is None:
        raise InvalidInput(
            f"signal {written[:40]!r}: write SIGNAL@SECONDS, such as USR1@300; signals are {', '.join(SIGNALS)}",
            code="invalid-signal",
        )
    seconds = match[2]
    return Notice(match[1], _NOTICE_SECONDS if seconds is None else int(seconds))


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    private: bool = False
    starts_at: datetime | None = None
    time_limit_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    """It ends after its tasks have been idle for this long."""
    notice: Notice | None = None
    array: Array | None = None
    max_retries: int = 0
    retry_on: tuple[int, ...] | None = None
    """Exit codes that are retried; None: any."""
    dependencies: tuple[tuple[UUID, Condition], ...] = ()
    on_dependency_failure: OnDependencyFailure = OnDependencyFailure.CANCEL
    singleton: str | None = None
    """Workloads of one user with the same value run one after the other."""
    booking: UUID | None = None
    """The timeslot whose reserved capacity it uses."""


DEFAULT_SCHEDULE = ScheduleOptions()
