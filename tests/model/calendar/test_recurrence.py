"""Series: the wall clock decides, whatever daylight saving does, and every rule has an end."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrule, rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mooring.model.calendar import recurrence
from mooring.model.calendar.recurrence import HORIZON, MAX_OCCURRENCES, occurrences
from mooring.model.errors import InvalidInput
from tests.selection import examples

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


def test_an_ambiguous_local_time_is_the_first_of_the_two():
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
        ("FREQ=DAILY;COUNT=1;BYMONTH=2;BYMONTHDAY=30", "invalid-rule"),
        ("FREQ=DAILY;COUNT=1;BYMONTH=13", "invalid-rule"),
        ("FREQ=DAILY;COUNT=1;BYHOUR=24", "invalid-rule"),
        ("FREQ=DAILY;COUNT=1;BYMONTHDAY=0", "invalid-rule"),
        ("FREQ=DAILY;COUNT=1;BYMONTHDAY=x", "invalid-rule"),
        ("FREQ=DAILY;COUNT=1;BYSETPOS=" + "9" * 400, "invalid-rule"),
        ("FREQ=MONTHLY;COUNT=1;BYDAY=54MO", "invalid-rule"),
        ("FREQ=WEEKLY;COUNT=1;WKST=9", "invalid-rule"),
        ("FREQ=DAILY;COUNT=501", "series-too-long"),
        ("FREQ=DAILY;UNTIL=20350101", "series-too-long"),
    ],
)
def test_a_rule_without_an_end_or_a_meaning_is_refused(rule: str, code: str):
    with pytest.raises(InvalidInput) as refused:
        occurrences(rule, "UTC", utc("2026-10-20T09:00"))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("until", "timezone"), [("00010101T000000Z", "America/New_York"), ("99991231T235959Z", "Asia/Tokyo")]
)
def test_an_end_outside_the_years_of_the_calendar_is_refused(until: str, timezone: str):
    with pytest.raises(InvalidInput, match="there is no such time") as refused:
        occurrences(f"FREQ=DAILY;UNTIL={until}", timezone, utc("2026-10-20T09:00"))
    assert refused.value.code == "invalid-rule"


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
    assert len(found) <= MAX_OCCURRENCES
    for moment in found:
        shown = moment.astimezone(there).replace(tzinfo=None)
        exists = shown.replace(tzinfo=there).astimezone(UTC) == moment
        assert exists or shown.time() != begins.time()


def test_a_rule_may_name_weekdays_with_and_without_a_number():
    found = occurrences(
        "FREQ=MONTHLY;BYDAY=1MO,-1FR,WE;BYMONTHDAY=1,2,3,4,5,6,7,30;COUNT=4", "UTC", utc("2026-10-20T09:00")
    )
    assert [moment.strftime("%a %d %b") for moment in found] == ["Fri 30 Oct", "Mon 02 Nov", "Wed 04 Nov", "Wed 02 Dec"]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;COUNT=1;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=WEEKLY;COUNT=1;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;COUNT=1;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;COUNT=1;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;UNTIL=20300101;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;COUNT=2;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=DAILY;COUNT=1;BYYEARDAY=366;BYWEEKNO=30;BYDAY=MO;BYSETPOS=366",
    ],
)
def test_each_day_up_to_the_horizon_is_looked_at_once_at_most(rule: str, monkeypatch: pytest.MonkeyPatch):
    looked_at: list[date] = []
    matches = recurrence._matches

    def counted(parsed: recurrence._Rule, day: date) -> bool:
        looked_at.append(day)
        return matches(parsed, day)

    monkeypatch.setattr(recurrence, "_matches", counted)
    with pytest.raises(InvalidInput) as refused:
        occurrences(rule, "UTC", utc("2026-10-20T09:00"))
    assert refused.value.code == "invalid-rule"
    assert len(set(looked_at)) == len(looked_at) <= HORIZON.days + 2 * 366


def test_no_more_occurrences_are_made_than_a_series_may_have(monkeypatch: pytest.MonkeyPatch):
    made: list[datetime] = []
    expand = recurrence._expand

    def counted(*arguments: object) -> object:
        for moment in expand(*arguments):  # type: ignore[arg-type]
            made.append(moment)
            yield moment

    monkeypatch.setattr(recurrence, "_expand", counted)
    sixty = ",".join(map(str, range(60)))
    with pytest.raises(InvalidInput, match="at most 500"):
        occurrences(f"FREQ=DAILY;UNTIL=20350101;BYMINUTE={sixty};BYSECOND={sixty}", "UTC", utc("2026-10-20T09:00"))
    assert len(made) == MAX_OCCURRENCES + 1


def _lists(least: int, most: int, largest: int = 4) -> st.SearchStrategy[str]:
    numbers = st.integers(least, most).filter(lambda number: number != 0 or least == 0)
    return st.lists(numbers, min_size=1, max_size=largest).map(lambda found: ",".join(map(str, found)))


@st.composite
def rules(draw: st.DrawFn) -> str:
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    days = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
    numbered = [f"{number}{day}" for number in (1, 2, 5, -1, -3) for day in days]
    parts = {
        "INTERVAL": st.integers(1, 5).map(str),
        "BYMONTH": _lists(1, 12),
        "BYMONTHDAY": _lists(-31, 31, 12),
        # dateutil leaves the first week of the next year out where it is counted from the end.
        "BYWEEKNO": _lists(-50, 53),
        "BYYEARDAY": _lists(-365, 366, 12),
        # dateutil wants both of `MO,2TU` at once.
        "BYDAY": (
            st.sampled_from([days, numbered] if frequency in ("MONTHLY", "YEARLY") else [days])
            .flatmap(lambda known: st.lists(st.sampled_from(known), min_size=1, max_size=4))
            .map(",".join)
        ),
        "BYHOUR": _lists(0, 23),
        "BYMINUTE": _lists(0, 59),
        "BYSECOND": _lists(0, 59),
        "WKST": st.sampled_from(days),
    }
    if frequency != "WEEKLY":
        # dateutil counts the positions of the first week from the first occurrence on.
        parts["BYSETPOS"] = _lists(-8, 8)
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), unique=True, max_size=4))
    return ";".join([f"FREQ={frequency}", *(f"{name}={draw(parts[name])}" for name in chosen)])


@settings(max_examples=examples(100))
@given(rules(), st.dates(date(2020, 1, 1), date(2030, 12, 31)), st.times())
def test_rules_expand_as_dateutil_expands_them(rule: str, day: date, at: time):
    first = datetime.combine(day, at.replace(microsecond=0))
    until = first + timedelta(days=1200)
    try:
        found = occurrences(f"{rule};UNTIL={until:%Y%m%dT%H%M%S}", "UTC", first.replace(tzinfo=UTC))
    except InvalidInput as error:
        assume(error.code != "series-too-long")
        found = []
    # The calendar repeats every 400 years. Where nothing matches dateutil searches to the year 9999: begin near it.
    later = rrulestr(rule, dtstart=first.replace(year=first.year + 7600))
    assert isinstance(later, rrule)
    expected = later.replace(until=until.replace(year=until.year + 7600))
    assert [moment.replace(tzinfo=None, year=moment.year + 7600) for moment in found] == list(expected)


def test_dates_of_a_series_can_be_left_out_and_must_be_of_it():
    first = datetime(2027, 3, 1, 9, tzinfo=UTC)
    left = occurrences("FREQ=WEEKLY;COUNT=4", "UTC", first, exceptions=[date(2027, 3, 8), date(2027, 3, 22)])
    assert left == [first, first + timedelta(weeks=2)]
    with pytest.raises(InvalidInput, match="no occurrence on 2027-03-09"):
        occurrences("FREQ=WEEKLY;COUNT=4", "UTC", first, exceptions=[date(2027, 3, 9)])
    with pytest.raises(InvalidInput, match="all of its occurrences are excluded"):
        occurrences("FREQ=WEEKLY;COUNT=1", "UTC", first, exceptions=[date(2027, 3, 1)])


def test_an_exception_is_a_date_by_the_wall_clock_of_the_zone():
    # 23:30 in New York is the next day in UTC.
    first = datetime(2027, 3, 2, 4, 30, tzinfo=UTC)
    left = occurrences("FREQ=DAILY;COUNT=2", "America/New_York", first, exceptions=[date(2027, 3, 1)])
    assert left == [first + timedelta(days=1)]
