"""What an attempt did: success, retry, expired, give up or skipped; and when equal attempts are one record.

Pure. Waiting for capacity is never an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.workloads import Kind


class Phase(StrEnum):
    """What was tried."""

    PLACE = "place"
    BIND = "bind"
    PREPARE = "prepare"
    START = "start"


class Result(StrEnum):
    SUCCESS = "success"
    RETRY = "retry"
    EXPIRED = "expired"
    GIVE_UP = "give_up"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """How often and how long something is tried; None: for ever."""

    max_attempts: int | None = 5
    timeout: timedelta | None = None


START_LIMITS = {Kind.SESSION: AttemptLimits(max_attempts=1), Kind.DEPLOYMENT: AttemptLimits(max_attempts=None)}
"""A session's task that cannot start fails it; a deployment's replica is replaced as often as it takes."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Something that was tried, once."""

    workload_id: UUID
    phase: Phase
    result: Result
    code: str | None = None
    message: str | None = None
    task_id: UUID | None = None
    task_index: int | None = None
    """The successors of a task have its index: attempts at them are attempts at the same thing."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Equal attempts in a row."""

    attempt: Attempt
    number: int
    first_at: datetime
    last_at: datetime

    def takes(self, new: Attempt) -> bool:
        """Whether the new attempt is one more of the same: the message may tell it in other words."""
        old = self.attempt
        same_thing = (old.workload_id, old.task_index) == (new.workload_id, new.task_index)
        return same_thing and (old.phase, old.result, old.code) == (new.phase, new.result, new.code)


def judge(last: AttemptRecord | None, phase: Phase, limits: AttemptLimits, now: datetime) -> Result:
    """What becomes of something that failed now, by the last record about it."""
    if last is None or last.attempt.phase is not phase or last.attempt.result is Result.SUCCESS:
        return classify(1, timedelta(), limits)
    return classify(last.number + 1, now - last.first_at, limits, last_was_skip=last.attempt.result is Result.SKIPPED)


def classify(attempts: int, elapsed: timedelta, limits: AttemptLimits, *, last_was_skip: bool = False) -> Result:
    """What becomes of something that failed: `attempts` so far with this one, `elapsed` since the first of its phase.

    Giving up goes before expiry. What was only skipped the last time did not fail, so it is not given up for it.
    """
    if limits.max_attempts is not None and attempts >= limits.max_attempts and not last_was_skip:
        return Result.GIVE_UP
    if limits.timeout is not None and elapsed > limits.timeout:
        return Result.EXPIRED
    return Result.RETRY
