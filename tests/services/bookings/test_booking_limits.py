"""Limits of bookings: horizon, length, number, slot-hours, and quotas at every moment of the window."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.calendar.timeslots import Timeslot, TimeslotKind, TimeslotStatus
from mooring.model.errors import InvalidInput
from mooring.model.tenancy.admission import AdmissionError
from mooring.model.tenancy.policies import Policy, parse_policy, policy_rules
from mooring.model.tenancy.quotas import Scope, Tenant
from mooring.services.bookings.booking_limits import check_number, check_policy, check_quota
from mooring.store.reservations.booked_amounts import amounts_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
VISION = Tenant(Scope.PROJECT, str(UUID(int=5)))


def slot(start: float = 1, hours: float = 1, *, cpu: int = 1, count: int = 1, lead: int = 0, **more: Any) -> Timeslot:
    """From so many hours from now on."""
    return Timeslot(
        uuid4(),
        "s",
        TimeslotKind.BOOKING,
        "default",
        TimeslotStatus.REQUESTED,
        NOW + start * HOUR,
        NOW + (start + hours) * HOUR,
        lead_seconds=lead,
        request={"cpu": cpu * 1000},
        count=count,
        **more,
    )


def refused(policy: Policy, live: Sequence[Timeslot], *new: Timeslot) -> str | None:
    try:
        check_policy(policy, [amounts_of(each) for each in live], new, NOW)
    except InvalidInput as error:
        return error.code
    return None


def test_the_horizon_is_where_a_timeslot_may_begin_at_the_latest():
    policy = Policy(booking_horizon_seconds=7200)
    assert refused(policy, [], slot(2, 9)) is None
    assert refused(policy, [], slot(2.001)) == "beyond-horizon"
    assert refused(policy, [], slot(1), slot(3)) == "beyond-horizon"


def test_a_timeslot_is_as_long_as_its_policy_allows():
    policy = Policy(max_booking_seconds=3600)
    assert refused(policy, [], slot(hours=1)) is None
    assert refused(policy, [], slot(hours=1.001)) == "booking-too-long"


def test_the_number_counts_what_is_there_and_what_is_asked_for():
    check_number(3, live=1, requested=2)
    with pytest.raises(InvalidInput, match="you have 1 and request 3") as refusal:
        check_number(3, live=1, requested=3)
    assert refusal.value.code == "too-many-bookings"


def test_slot_hours_are_amounts_times_tasks_times_hours():
    policy = parse_policy({"max_booking_slot_hours": {"cpu": "20"}})
    there = [slot(hours=2, cpu=4)]  # 8 cpu hours
    assert refused(policy, there, slot(hours=3, cpu=2, count=2)) is None  # 12 more
    assert refused(policy, there, slot(hours=3, cpu=2, count=2), slot(hours=0.01)) == "too-many-slot-hours"
    assert refused(policy, [slot(hours=30)], slot(cpu=0)) is None


def test_no_rule_is_no_limit():
    assert refused(Policy(), [slot()] * 1000, slot(10_000, 1000, cpu=1000)) is None


def test_rules_of_bookings_are_written_and_read_as_others_are():
    rules = {
        "booking_horizon_seconds": 86400,
        "max_booking_seconds": 3600,
        "max_bookings": 5,
        "max_booking_slot_hours": {"gpu": "100", "memory": "1Ti"},
    }
    assert policy_rules(parse_policy(rules)) == rules
    with pytest.raises(InvalidInput, match="max_bookings"):
        parse_policy({"max_bookings": -1})


def exceeds(limit: int, live: Sequence[Timeslot], *new: Timeslot, running: int = 0) -> dict[str, Any] | None:
    try:
        there = [amounts_of(each) for each in live]
        check_quota(VISION, "vision", {"cpu": limit * 1000}, {"cpu": running * 1000}, there, new)
    except AdmissionError as error:
        [violation] = error.violations
        return {"used": violation.used // 1000, "requested": violation.requested // 1000}
    return None


def test_the_error_names_whose_quota_it_is():
    with pytest.raises(AdmissionError, match="project 'vision' may use 8 cpu; within the booking from") as refusal:
        check_quota(VISION, "vision", {"cpu": 8000}, {}, [], [slot(cpu=9)])
    assert refusal.value.code == "project-quota-exceeded"


def test_overlapping_timeslots_are_added_and_consecutive_ones_are_not():
    there = [slot(1, 1, cpu=4), slot(2, 1, cpu=4)]
    # Both are within its window, but never at the same time.
    assert exceeds(8, there, slot(1, 2, cpu=4)) is None
    assert exceeds(8, there, slot(1, 2, cpu=5)) == {"used": 4, "requested": 5}
    # The windows are half-open: it begins exactly where the other ends.
    assert exceeds(8, there, slot(3, 1, cpu=8)) is None


def test_the_lead_counts_as_reserved_time():
    assert exceeds(8, [slot(1, 1, cpu=4)], slot(2, 1, cpu=8, lead=60)) == {"used": 4, "requested": 8}


def test_running_work_without_an_end_counts():
    assert exceeds(8, [], slot(cpu=4), running=4) is None
    assert exceeds(8, [], slot(cpu=4), running=5) == {"used": 5, "requested": 4}


def test_the_occurrences_of_a_series_count_against_each_other():
    assert exceeds(8, [], slot(1, 1, cpu=5), slot(2, 1, cpu=5)) is None
    assert exceeds(8, [], slot(1, 1.5, cpu=5), slot(2, 1, cpu=5)) == {"used": 5, "requested": 5}


def test_a_request_of_zero_is_not_refused_for_a_slot():
    assert exceeds(8, [slot(cpu=20)], slot(cpu=0)) is None


windows = st.builds(
    lambda start, hours, cpu, count, lead: slot(start, hours, cpu=cpu, count=count, lead=lead * 3600),
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(1, 3),
    st.integers(0, 2),
)


@given(st.lists(windows, max_size=6), st.lists(windows, min_size=1, max_size=4), st.integers(0, 20), st.integers(0, 5))
def test_a_quota_is_exceeded_exactly_where_it_is_at_some_hour(
    live: list[Timeslot], new: list[Timeslot], limit: int, running: int
):
    def stored(slots: Sequence[Timeslot], hour: int) -> int:
        moment = NOW + hour * HOUR
        return sum(s.request["cpu"] * s.count for s in slots if s.eligible_at <= moment < s.ends_at)

    asking = [s for s in new if s.request["cpu"]]
    over = any(
        stored(asking, hour) and running * 1000 + stored(live, hour) + stored(asking, hour) > limit * 1000
        for hour in range(-2, 24)
    )
    assert (exceeds(limit, live, *new, running=running) is not None) is over
