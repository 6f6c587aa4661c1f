"""Results of failed attempts, and merging of equal attempts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mooring.model.workloads.lifetime.attempts import (
    Attempt,
    AttemptLimits,
    AttemptRecord,
    Phase,
    Result,
    classify,
    judge,
)

LIMITS = AttemptLimits(max_attempts=5, timeout=timedelta(seconds=900))
AT = datetime(2026, 1, 1, tzinfo=UTC)
TRIED = Attempt(UUID(int=1), Phase.START, Result.RETRY, "image-missing")


@pytest.mark.parametrize(
    ("attempts", "seconds", "skipped", "expected"),
    [
        pytest.param(5, 1000, False, Result.GIVE_UP, id="giving up goes before expiry"),
        pytest.param(5, 0, False, Result.GIVE_UP, id="the last attempt that is allowed"),
        pytest.param(4, 901, False, Result.EXPIRED, id="over time"),
        pytest.param(4, 900, False, Result.RETRY, id="just in time"),
        pytest.param(7, 0, True, Result.RETRY, id="a skip is not given up"),
        pytest.param(7, 901, True, Result.EXPIRED, id="a skip may expire"),
    ],
)
def test_a_failure_is_given_up_expired_or_tried_again(attempts: int, seconds: int, skipped: bool, expected: Result):
    assert classify(attempts, timedelta(seconds=seconds), LIMITS, last_was_skip=skipped) is expected


def test_without_limits_attempts_are_repeated_indefinitely():
    assert classify(10**6, timedelta(days=10_000), AttemptLimits(None, None)) is Result.RETRY


def test_the_last_record_has_the_number_and_the_duration():
    def after(number: int, seconds: int, **more: Any) -> Result:
        record = AttemptRecord(replace(TRIED, **more), number, AT, AT)
        return judge(record, Phase.START, LIMITS, AT + timedelta(seconds=seconds))

    assert judge(None, Phase.START, LIMITS, AT) is Result.RETRY
    assert judge(None, Phase.START, AttemptLimits(max_attempts=1), AT) is Result.GIVE_UP
    assert after(3, 0) is Result.RETRY
    assert after(4, 0) is Result.GIVE_UP
    assert after(3, 901) is Result.EXPIRED
    assert after(6, 0, result=Result.SKIPPED) is Result.RETRY
    # Another phase, or a success, starts over.
    assert after(9, 901, phase=Phase.BIND) is Result.RETRY
    assert after(9, 901, result=Result.SUCCESS) is Result.RETRY


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"message": "in other words"}, True),
        ({"task_id": UUID(int=9)}, True),
        ({"task_index": 1}, False),
        ({"phase": Phase.BIND}, False),
        ({"result": Result.SKIPPED}, False),
        ({"code": "no-such-command"}, False),
    ],
)
def test_equal_attempts_are_one_record(change: dict[str, Any], same: bool):
    assert AttemptRecord(TRIED, 1, AT, AT).takes(replace(TRIED, **change)) is same
