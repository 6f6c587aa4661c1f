"""Warning and end of an idle session, for a timeout of ten minutes."""

from datetime import UTC, datetime, timedelta

import pytest

from mooring.model.workloads.lifetime.idleness import Idleness, Step, is_active

SINCE = datetime(2026, 3, 2, 9, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return SINCE + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("warned", "known", "step"),
    [
        # warned at 80 % of the time, ended at its end
        (None, 7.9, Step.NONE),
        (None, 8, Step.WARN),
        (8, 9.9, Step.NONE),
        (8, 10, Step.END),
        # no measurement for long: it is warned first, and then has the last fifth of the time
        (None, 30, Step.WARN),
        (30, 31.9, Step.NONE),
        (30, 32, Step.END),
        # it was warned, and then active: that warning does not count any more
        (-1, 1, Step.FORGIVE),
        (7, 8, Step.WARN),
    ],
)
def test_a_session_is_warned_before_it_ends(warned, known, step):
    idleness = Idleness(SINCE, timedelta(minutes=10), None if warned is None else at(warned))
    assert idleness.step(at(known)) is step


def test_a_little_work_is_none():
    assert [is_active(19, 1023), is_active(20, 0), is_active(0, 1024)] == [False, True, True]
