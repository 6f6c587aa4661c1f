"""Time windows as users type them: `14:00`, `2026-11-20T14:00`, `+2h`, in a time zone."""

from __future__ import annotations

import os
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.model.errors import InvalidInput

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_LOCAL_ZONE = Path("/etc/localtime")


def window(
    start: str | None, end: str | None, length: str | None, timezone: str | None, *, before: datetime | None = None
) -> dict[str, Any]:
    """Return the fields of a window. Without a start it begins now, by the server's clock.

    `before` is the start of the booking to change, which stays unless another one is given.
    """
    from mooring.model.calendar.durations import parse_duration
    from mooring.model.calendar.recurrence import zone

    there = None if timezone is None else zone(timezone)
    if before is not None and start == "now":
        raise InvalidInput("the new start must be in the future, such as +1m")
    begins = before if start in (None, "now") else moment_in(start, there)
    if length is not None:
        parse_duration(length)
    return {
        "start": None if begins is before else begins,
        "end": None if end is None else moment_in(end, there, after=begins),
        "duration": length,
    }


def moment_in(written: str, zone: ZoneInfo | None, *, after: datetime | None = None) -> datetime:
    """Return an instant from a time in a time zone, by default that of this machine.

    Times of day and `+2h` count from `after`, by default from now.
    """
    from mooring.model.calendar.durations import parse_duration

    base = after or datetime.now().astimezone()
    if written.startswith("+"):
        return base + timedelta(seconds=parse_duration(written[1:]))
    try:
        if ":" in written and "T" not in written.upper() and "-" not in written:
            return _next(time.fromisoformat(written), base, zone)
        moment = datetime.fromisoformat(written)
        return moment.replace(tzinfo=zone) if moment.tzinfo is None and zone is not None else moment.astimezone()
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{written[:40]!r} is not a time; write 14:00, 2026-05-01T12:00, or +2h for two hours from now"
        ) from None


def local_zone() -> str:
    """Return the name of this machine's time zone. A series needs it, since an offset has no daylight saving time."""
    if named := os.environ.get("TZ", "").removeprefix(":"):
        return named
    target = str(_LOCAL_ZONE.resolve())
    if "/zoneinfo/" in target:
        return target.partition("/zoneinfo/")[2]
    if not datetime.now().astimezone().utcoffset():
        return "UTC"
    raise InvalidInput("the time zone of this machine is unknown; give it with --timezone Europe/Berlin")


def _next(of_day: time, base: datetime, zone: ZoneInfo | None) -> datetime:
    """Return the first instant after `base` with this time of day."""
    there = base.astimezone(zone)
    today = datetime.combine(there.date(), of_day)
    for days in (0, 1):
        wall = today + timedelta(days=days)
        moment = wall.replace(tzinfo=zone) if zone is not None else wall.astimezone()
        if moment > base:
            break
    return moment
