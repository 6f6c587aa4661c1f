"""Series: the wall clock decides, whatever daylight saving does, and every rule has an end."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.model.errors import InvalidInput
from mooring.model.recurrence import MOST_OCCURRENCES, occurrences

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
ZONES = [BERLIN, NEW_YORK, "UTC", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Tehran"]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def wall(text: str, zone: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def test_nine_oclock_stays_nine_oclock_when_summer_time_ends():
    # Summer time ends on 2026-10-25: 09:00 is 07:00 UTC before, 08:00 UTC after.
    found = occurrences("FREQ=WEEKLY;COUNT=3", BERLIN, wall("2026-10-19T09:00", BERLIN))
    assert found == [utc("2026-10-19T07:00"), utc("2026-10-26T08:00"), utc("2026-11-02T08:00")]


def test_nine_oclock_stays_nine_oclock_when_summer_time_begins():
    found = occurrences("FREQ=DAILY;COUNT=3", BERLIN, wall("2026-03-28T09:00", BERLIN))
    assert found == [utc("2026-03-28T08:00"), utc("2026-03-29T07:00"), utc("2026-03-30T07:00")]


def test_a_time_that_the_clock_leaves_out_is_as_late_as_its_offset_before_says():
    # On 2026-03-29 the clock goes from 02:00 to 03:00: 02:30 by winter time is 01:30 UTC, which shows as 03:30.
    found = occurrences("FREQ=DAILY;COUNT=3", BERLIN, wall("2026-03-28T02:30", BERLIN))
    assert found == [utc("2026-03-28T01:30"), utc("2026-03-29T01:30"), utc("2026-03-30T00:30")]


def test_of_a_time_that_the_clock_shows_twice_the_first_is_meant():
    # On 2026-11-01 in New York 01:30 comes at 05:30 UTC, and again at 06:30 UTC.
    found = occurrences("FREQ=DAILY;COUNT=3", NEW_YORK, wall("2026-10-31T01:30", NEW_YORK))
    assert found == [utc("2026-10-31T05:30"), utc("2026-11-01T05:30"), utc("2026-11-02T06:30")]


def test_two_times_that_come_to_the_same_are_one_occurrence():
    # On 2026-03-29 both 02:30 by winter time and 03:30 are 01:30 UTC.
    found = occurrences("FREQ=DAILY;BYHOUR=2,3;COUNT=4", BERLIN, wall("2026-03-28T02:30", BERLIN))
    assert found == [utc("2026-03-28T01:30"), utc("2026-03-28T02:30"), utc("2026-03-29T01:30")]


@pytest.mark.parametrize(
    ("until", "number"),
    [
        ("20261026", 8),  # the whole day
        ("20261026T090000", 8),
        ("20261026T085959", 7),
        ("20261026T080000Z", 8),  # 09:00 in winter
        ("20261026T075959Z", 7),
    ],
)
def test_the_last_may_begin_at_the_end_of_the_rule(until: str, number: int):
    found = occurrences(f"FREQ=DAILY;UNTIL={until}", BERLIN, wall("2026-10-19T09:00", BERLIN))
    assert len(found) == number


def test_a_rule_may_name_days():
    found = occurrences("RRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=4", "UTC", utc("2026-10-20T09:00"))
    assert [moment.strftime("%a %d") for moment in found] == ["Wed 21", "Mon 26", "Wed 28", "Mon 02"]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("FREQ=WEEKLY", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=2;UNTIL=20300101", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=0", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=-1", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=two", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=2;COUNT=3", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=2;INTERVAL=0", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=2;BYDAY=XX", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=2;BYMOON=1", "invalid-rule"),
        ("FREQ=SECONDLY;COUNT=2", "invalid-rule"),
        ("FREQ=MINUTELY;COUNT=2", "invalid-rule"),
        ("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30;COUNT=5", "invalid-rule"),
        ("COUNT=2", "invalid-rule"),
        ("every day", "invalid-rule"),
        ("FREQ=DAILY;UNTIL=20261399", "invalid-rule"),
        ("FREQ=DAILY;UNTIL=tomorrow", "invalid-rule"),
        ("FREQ=DAILY;UNTIL=20200101", "invalid-rule"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;COUNT=3", "invalid-rule"),
        ("FREQ=YEARLY;COUNT=12", "invalid-rule"),
        ("FREQ=YEARLY;UNTIL=20500101", "invalid-rule"),
        ("FREQ=DAILY;COUNT=501", "series-too-long"),
        ("FREQ=DAILY;UNTIL=20350101", "series-too-long"),
    ],
)
def test_a_rule_without_an_end_or_a_meaning_is_refused(rule: str, code: str):
    with pytest.raises(InvalidInput) as refused:
        occurrences(rule, "UTC", utc("2026-10-20T09:00"))
    assert refused.value.code == code


@given(
    st.sampled_from(ZONES),
    st.dates(date(2020, 1, 1), date(2030, 12, 31)),
    st.times(),
    st.integers(1, 8),
    st.integers(1, 60),
    st.sampled_from(["DAILY", "WEEKLY"]),
)
def test_each_occurrence_shows_the_same_time_on_the_wall(
    zone: str, day: date, at: time, interval: int, count: int, frequency: str
):
    there = ZoneInfo(zone)
    first = datetime.combine(day, at.replace(microsecond=0), there)
    found = occurrences(f"FREQ={frequency};INTERVAL={interval};COUNT={count}", zone, first)
    step = timedelta(days=interval * (7 if frequency == "WEEKLY" else 1))
    # One that is left out on the wall begins later from its first day on.
    begins = first.astimezone(UTC).astimezone(there).replace(tzinfo=None)
    expected = [(begins + number * step).replace(tzinfo=there).astimezone(UTC) for number in range(count)]
    assert found == expected
    assert len(found) <= MOST_OCCURRENCES
    for moment in found:
        shown = moment.astimezone(there).replace(tzinfo=None)
        exists = shown.replace(tzinfo=there).astimezone(UTC) == moment
        assert exists or shown.time() != begins.time()
