"""Recurring bookings: a rule of RFC 5545, expanded in the wall time of a zone.

The wall clock decides: nine o'clock stays nine o'clock when daylight saving begins or ends. A time that the wall clock
skips uses the offset from before the change, one that it shows twice is the first of both; two times that become the
same moment are one occurrence. The length of each is exact.

A rule is a tenant's input, so its expansion has a fixed worst case: every day of ten years is looked at once at most,
and it stops at the first occurrence too many. (`dateutil.rrule` compares with UNTIL only what it finds: a rule that
matches no day makes it search to the year 9999. The tests compare both expansions.)
"""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from mooring.model.calendar.durations import MAX_DURATION_SECONDS
from mooring.model.errors import InvalidInput

MAX_OCCURRENCES = 500
HORIZON = timedelta(seconds=MAX_DURATION_SECONDS)
"""The last occurrence begins within this time after the first."""
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RANGES = {
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYMONTH": (1, 12),
    "BYSETPOS": (-366, 366),
}
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_RANGES})
_LARGEST_INTERVAL = 10_000
_UNTIL = re.compile(r"(\d{8})(?:T(\d{6})(Z)?)?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_DAY = re.compile(rf"([+-]?\d{{1,2}})?({'|'.join(_WEEKDAYS)})", re.ASCII)
_ONE_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule's parts, with those that follow from the first occurrence filled in."""

    frequency: str
    interval: int
    week_start: int
    months: frozenset[int]
    month_days: frozenset[int]
    year_days: frozenset[int]
    week_numbers: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]
    """(n, weekday): the nth of its month or year, counted from the end if negative."""
    times: tuple[time, ...]
    positions: tuple[int, ...]


def zone(name: str) -> ZoneInfo:
    """Return the time zone of a name such as `Europe/Berlin`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"there is no time zone {name[:63]!r}; write one such as Europe/Berlin", code="unknown-timezone"
        ) from None


def occurrences(rule: str, timezone: str, first: datetime, *, exceptions: Collection[date] = ()) -> list[datetime]:
    """Return the starts of a series in UTC, from `first` on; raise InvalidInput for a rule without end or occurrence.

    Exceptions are dates by the wall clock that are left out; each must be one of the series.
    """
    there = zone(timezone)
    parts = _parts(rule)
    begins = first.astimezone(there).replace(tzinfo=None)
    latest = begins + HORIZON
    until = _until(parts["UNTIL"], there) if "UNTIL" in parts else latest
    count = _number(parts, "COUNT", MAX_OCCURRENCES + 1)
    found: list[datetime] = []
    for moment in _expand(_parsed(rule, parts, begins), begins, min(until, latest)):
        found.append(moment)
        if len(found) == count:
            break
    if len(found) > MAX_OCCURRENCES:
        raise InvalidInput(
            f"a series has at most {MAX_OCCURRENCES} occurrences; end it sooner, with COUNT or UNTIL",
            code="series-too-long",
        )
    if not found:
        raise _wrong(rule, f"it has no occurrence from {begins:%Y-%m-%d %H:%M} to {min(until, latest):%Y-%m-%d %H:%M}")
    if until > latest or ("COUNT" in parts and len(found) < count):
        raise _wrong(rule, f"it lasts more than ten years: {len(found)} occurrences start within them")
    left = [moment for moment in found if moment.date() not in exceptions]
    if missing := sorted(set(exceptions) - {moment.date() for moment in found}):
        raise _wrong(rule, f"it has no occurrence on {missing[0]}, which is listed as an exception")
    if not left:
        raise _wrong(rule, "all of its occurrences are excluded")
    return sorted({moment.replace(tzinfo=there).astimezone(UTC) for moment in left})


def _expand(rule: _Rule, begins: datetime, last: datetime) -> Iterator[datetime]:
    """Yield the wall times of a rule from `begins` to `last`, in order."""
    for days in _periods(rule, begins.date(), last.date()):
        matching = [day for day in days if _matches(rule, day)]
        for moment in _at_positions(rule, matching) if rule.positions else _at_times(rule, matching):
            if moment > last:
                return
            if moment >= begins:
                yield moment


def _periods(rule: _Rule, first: date, last: date) -> Iterator[Sequence[date]]:
    """Yield the days of each period of the rule that begins no later than `last`."""
    if rule.frequency == "YEARLY":
        for year in range(first.year, last.year + 1, rule.interval):
            yield _days(date(year, 1, 1), 365 + isleap(year))
    elif rule.frequency == "MONTHLY":
        for month in range(first.year * 12 + first.month - 1, last.year * 12 + last.month, rule.interval):
            begin = date(month // 12, month % 12 + 1, 1)
            yield _days(begin, monthrange(begin.year, begin.month)[1])
    else:
        length = 7 if rule.frequency == "WEEKLY" else 1
        begin = first if length == 1 else _week_of(first, rule.week_start)
        for number in range(0, (last - begin).days + 1, rule.interval * length):
            yield _days(begin + timedelta(days=number), length)


def _days(first: date, number: int) -> list[date]:
    return [first + timedelta(days=offset) for offset in range(number)]


def _at_times(rule: _Rule, days: Sequence[date]) -> Iterator[datetime]:
    return (datetime.combine(day, at) for day in days for at in rule.times)


def _at_positions(rule: _Rule, days: Sequence[date]) -> list[datetime]:
    """Return the times that BYSETPOS selects from one period, without creating the others."""
    size = len(days) * len(rule.times)
    indexes = {position - 1 if position > 0 else size + position for position in rule.positions}
    chosen = (divmod(index, len(rule.times)) for index in sorted(indexes) if 0 <= index < size)
    return [datetime.combine(days[day], rule.times[at]) for day, at in chosen]


def _matches(rule: _Rule, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    if rule.month_days:
        length = monthrange(day.year, day.month)[1]
        if day.day not in rule.month_days and day.day - length - 1 not in rule.month_days:
            return False
    if rule.year_days:
        number = day.timetuple().tm_yday
        if number not in rule.year_days and number - (366 + isleap(day.year)) not in rule.year_days:
            return False
    if rule.week_numbers and not _in_weeks(rule, day):
        return False
    if rule.weekdays or rule.nth_weekdays:
        return day.weekday() in rule.weekdays or _is_nth(rule, day)
    return True


def _in_weeks(rule: _Rule, day: date) -> bool:
    number, year = _week_number(day, rule.week_start)
    # The 28th of December is always in the last week of its year.
    most, _ = _week_number(date(year, 12, 28), rule.week_start)
    return number in rule.week_numbers or number - most - 1 in rule.week_numbers


def _week_number(day: date, week_start: int) -> tuple[int, int]:
    """Return the number of the week and its year: the year that has at least four of its days."""
    middle = _week_of(day, week_start) + 3 * _ONE_DAY
    return (middle.timetuple().tm_yday - 1) // 7 + 1, middle.year


def _week_of(day: date, week_start: int) -> date:
    return day - ((day.weekday() - week_start) % 7) * _ONE_DAY


def _is_nth(rule: _Rule, day: date) -> bool:
    """Return whether the day is the nth weekday: of the year in a yearly rule without months, else of its month."""
    if not rule.nth_weekdays:
        return False
    if rule.frequency == "YEARLY" and not rule.months:
        before, length = day.timetuple().tm_yday - 1, 365 + isleap(day.year)
    else:
        before, length = day.day - 1, monthrange(day.year, day.month)[1]
    from_start, from_end = before // 7 + 1, -((length - before - 1) // 7 + 1)
    weekday = day.weekday()
    return (from_start, weekday) in rule.nth_weekdays or (from_end, weekday) in rule.nth_weekdays


def _parts(rule: str) -> dict[str, str]:
    """Return the parts of a rule; raise for an unknown or repeated one."""
    parts: dict[str, str] = {}
    for part in rule.upper().removeprefix("RRULE:").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value or name not in _PARTS or name in parts:
            raise _wrong(rule, f"{part[:40]!r} is not a part of a rule, or appears twice")
        parts[name] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise _wrong(rule, f"FREQ must be one of {', '.join(_FREQUENCIES)}")
    if ("COUNT" in parts) == ("UNTIL" in parts):
        raise _wrong(rule, "it has no end: add COUNT or UNTIL")
    return parts


def _parsed(rule: str, parts: dict[str, str], begins: datetime) -> _Rule:
    numbers = {name: _numbers(rule, name, parts[name]) for name in _RANGES if name in parts}
    weekdays, nth_weekdays = _weekdays(rule, parts)
    months, month_days = numbers.get("BYMONTH", frozenset()), numbers.get("BYMONTHDAY", frozenset())
    frequency = parts["FREQ"]
    if not {"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY"} & parts.keys():
        # Without a day in the rule it is the first occurrence's.
        if frequency in ("YEARLY", "MONTHLY"):
            month_days = frozenset({begins.day})
        if frequency == "YEARLY" and not months:
            months = frozenset({begins.month})
        if frequency == "WEEKLY":
            weekdays = frozenset({begins.weekday()})
    return _Rule(
        frequency=frequency,
        interval=_number(parts, "INTERVAL", _LARGEST_INTERVAL) if "INTERVAL" in parts else 1,
        week_start=_weekday(rule, parts.get("WKST", "MO")),
        months=months,
        month_days=month_days,
        year_days=numbers.get("BYYEARDAY", frozenset()),
        week_numbers=numbers.get("BYWEEKNO", frozenset()),
        weekdays=weekdays,
        nth_weekdays=nth_weekdays,
        times=tuple(
            time(hour, minute, second)
            for hour in sorted(numbers.get("BYHOUR", {begins.hour}))
            for minute in sorted(numbers.get("BYMINUTE", {begins.minute}))
            for second in sorted(numbers.get("BYSECOND", {begins.second}))
        ),
        positions=tuple(numbers.get("BYSETPOS", ())),
    )


def _numbers(rule: str, name: str, written: str) -> frozenset[int]:
    least, most = _RANGES[name]
    found = frozenset(int(each) if _WHOLE_NUMBER.fullmatch(each) else most + 1 for each in written.split(","))
    if not all(least <= number <= most and (number or least == 0) for number in found):
        besides = " except 0" if least < 0 else ""
        raise _wrong(rule, f"{name} takes whole numbers from {least} to {most}{besides}")
    return found


def _weekdays(rule: str, parts: dict[str, str]) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    every: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for written in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        match = _DAY.fullmatch(written)
        if match is None or (match[1] and not 1 <= abs(int(match[1])) <= 53):
            raise _wrong(rule, f"{written[:20]!r} is not a weekday; write MO, or 2TU for the second Tuesday")
        weekday = _WEEKDAYS.index(match[2])
        # In rules by days and weeks a number means nothing.
        if match[1] and parts["FREQ"] in ("MONTHLY", "YEARLY"):
            nth.add((int(match[1]), weekday))
        else:
            every.add(weekday)
    return frozenset(every), frozenset(nth)


def _weekday(rule: str, written: str) -> int:
    if written not in _WEEKDAYS:
        raise _wrong(rule, f"WKST must be one of {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(written)


def _number(parts: dict[str, str], name: str, most: int) -> int:
    written = parts.get(name, str(most))
    if not re.fullmatch(r"\d{1,9}", written, re.ASCII) or int(written) < 1:
        raise _wrong(f"{name}={written[:20]}", "write a whole number of at least 1")
    return min(int(written), most)


def _until(written: str, there: ZoneInfo) -> datetime:
    """Return the last wall time for a start; a date alone includes the whole day."""
    match = _UNTIL.fullmatch(written)
    if match is None:
        raise _wrong(f"UNTIL={written[:20]}", "write 20261231, or 20261231T235959Z")
    day, time, in_utc = match.groups()
    try:
        moment = datetime.strptime(f"{day}{time or '235959'}Z", "%Y%m%d%H%M%S%z")
        return (moment.astimezone(there) if in_utc else moment).replace(tzinfo=None)
    except (ValueError, OverflowError):  # no such day, or before the year 1 or after 9999 in the zone
        raise _wrong(f"UNTIL={written}", "there is no such time") from None


def _wrong(rule: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"rule {rule[:80]!r}: {problem}; an example: FREQ=WEEKLY;BYDAY=MO;COUNT=10", code="invalid-rule"
    )
