"""Results of attempts (success, retry, expired, give up, skipped), and the merging of equal ones into one record.

Pure. Waiting for capacity is never an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from mooring.model.workloads.workload import Kind


class Phase(StrEnum):
    """The phase of an attempt."""

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
    """The limits of retries, by number and time; None: unlimited."""

    max_attempts: int | None = 5
    timeout: timedelta | None = None


START_LIMITS = {Kind.SESSION: AttemptLimits(max_attempts=1), Kind.DEPLOYMENT: AttemptLimits(max_attempts=None)}
"""A session fails if its task cannot start; a deployment's replica is replaced without limit."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt."""

    workload_id: UUID
    phase: Phase
    result: Result
    code: str | None = None
    message: str | None = None
    task_id: UUID | None = None
    task_index: int | None = None
    """Replacements of a task have its index, so their attempts count together."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Equal attempts in a row."""

    attempt: Attempt
    number: int
    first_at: datetime
    last_at: datetime

    def takes(self, new: Attempt) -> bool:
        """Return whether the new attempt repeats the last one; the messages may differ."""
        old = self.attempt
        same_thing = (old.workload_id, old.task_index) == (new.workload_id, new.task_index)
        return same_thing and (old.phase, old.result, old.code) == (new.phase, new.result, new.code)


def judge(last: AttemptRecord | None, phase: Phase, limits: AttemptLimits, now: datetime) -> Result:
    """Return the result of an attempt that failed now, by the last record."""
    if last is None or last.attempt.phase is not phase or last.attempt.result is Result.SUCCESS:
        return classify(1, timedelta(), limits)
    return classify(last.number + 1, now - last.first_at, limits, last_was_skip=last.attempt.result is Result.SKIPPED)


def classify(attempts: int, elapsed: timedelta, limits: AttemptLimits, *, last_was_skip: bool = False) -> Result:
    """Return the result of a failed attempt: `attempts` includes it, `elapsed` is the time since the first one.

    Giving up takes precedence over expiry. A skipped attempt did not fail, so it does not count towards giving up.
    """
    if limits.max_attempts is not None and attempts >= limits.max_attempts and not last_was_skip:
        return Result.GIVE_UP
    if limits.timeout is not None and elapsed > limits.timeout:
        return Result.EXPIRED
    return Result.RETRY
