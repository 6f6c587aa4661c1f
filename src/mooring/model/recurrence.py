"""Bookings that come again: a rule as in RFC 5545, in the wall time of a zone.

The clock on the wall is what people mean: nine o'clock stays nine o'clock when daylight saving begins or ends. A time
that the wall clock leaves out is as long after midnight as its offset before the change says, one that it shows twice
is the first of both; where two times come to the same by that, there is one occurrence. The length of each is exact.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from dateutil.rrule import rrule, rrulestr

from mooring.model.durations import LONGEST_SECONDS
from mooring.model.errors import InvalidInput

MOST_OCCURRENCES = 500
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
"""What comes more often names its hours; to look for the next one hour by hour could take for ever."""
_BY = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTHDAY", "YEARDAY", "WEEKNO", "MONTH", "SETPOS")
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", *(f"BY{unit}" for unit in _BY)})
_LARGEST_INTERVAL = 10_000
_UNTIL = re.compile(r"(\d{8})(?:T(\d{6})(Z)?)?", re.ASCII)


def zone(name: str) -> ZoneInfo:
    """The time zone of a name such as `Europe/Berlin`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput(
            f"there is no time zone {name[:63]!r}; write one such as Europe/Berlin", code="unknown-timezone"
        ) from None


def occurrences(rule: str, timezone: str, first: datetime) -> list[datetime]:
    """When a series begins each time, in UTC, from `first` on; InvalidInput for a rule without an end."""
    there = zone(timezone)
    parts = _parts(rule)
    begins = first.astimezone(there).replace(tzinfo=None)
    latest = begins + timedelta(seconds=LONGEST_SECONDS)
    until = _until(parts["UNTIL"], there) if "UNTIL" in parts else latest
    count = _number(parts, "COUNT", MOST_OCCURRENCES + 1)
    wanted = [f"{name}={value}" for name, value in parts.items() if name not in ("COUNT", "UNTIL")]
    try:
        pattern = rrulestr(";".join(wanted), dtstart=begins)
        assert isinstance(pattern, rrule)
        found = list(islice(pattern.replace(until=min(until, latest)), count))
    except (ValueError, OverflowError) as error:
        raise _wrong(rule, str(error)) from None
    if len(found) > MOST_OCCURRENCES:
        raise InvalidInput(
            f"a series has at most {MOST_OCCURRENCES} occurrences; end it sooner, with COUNT or UNTIL",
            code="series-too-long",
        )
    if not found:
        raise _wrong(rule, "it never happens")
    if until > latest or ("COUNT" in parts and len(found) < count):
        raise _wrong(rule, "it would go on for more than ten years")
    return sorted({moment.replace(tzinfo=there).astimezone(UTC) for moment in found})


def _parts(rule: str) -> dict[str, str]:
    """A rule by its parts, which are known, and each there once."""
    parts: dict[str, str] = {}
    for part in rule.upper().removeprefix("RRULE:").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value or name not in _PARTS or name in parts:
            raise _wrong(rule, f"{part[:40]!r} is no part of a rule, or is there twice")
        parts[name] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise _wrong(rule, f"FREQ is one of {', '.join(_FREQUENCIES)}")
    if ("COUNT" in parts) == ("UNTIL" in parts):
        raise _wrong(rule, "say when it ends: with COUNT, or with UNTIL")
    _number(parts, "INTERVAL", _LARGEST_INTERVAL)
    return parts


def _number(parts: dict[str, str], name: str, most: int) -> int:
    written = parts.get(name, str(most))
    if not re.fullmatch(r"\d{1,9}", written, re.ASCII) or int(written) < 1:
        raise _wrong(f"{name}={written[:20]}", "write a whole number from 1 on")
    return min(int(written), most)


def _until(written: str, there: ZoneInfo) -> datetime:
    """The wall time that is the last to begin at; a day alone is meant as a whole."""
    match = _UNTIL.fullmatch(written)
    if match is None:
        raise _wrong(f"UNTIL={written[:20]}", "write 20261231, or 20261231T235959Z")
    day, time, in_utc = match.groups()
    try:
        moment = datetime.strptime(f"{day}{time or '235959'}Z", "%Y%m%d%H%M%S%z")
    except ValueError:
        raise _wrong(f"UNTIL={written}", "there is no such time") from None
    return (moment.astimezone(there) if in_utc else moment).replace(tzinfo=None)


def _wrong(rule: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"rule {rule[:80]!r}: {problem}; an example: FREQ=WEEKLY;BYDAY=MO;COUNT=10", code="invalid-rule"
    )
