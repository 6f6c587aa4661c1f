"""Durations in written form: `90`, `30m`, `1h30m`, `2d`, `1-12:00:00`."""

from __future__ import annotations

import re

from mooring.model.errors import InvalidInput

MAX_DURATION_SECONDS = 10 * 365 * 86_400
_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_BY_UNIT = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s?)?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):(\d{1,2})(?::(\d{1,2}))?", re.ASCII)


def parse_duration(written: str) -> int:
    """Return whole seconds, at least one. Also reads `DAYS-HOURS:MINUTES[:SECONDS]` and `[HOURS:]MINUTES:SECONDS`."""
    seconds = _by_unit(written) or _by_clock(written)
    if not seconds:
        raise InvalidInput(
            f"{written[:40]!r} is not a duration; write seconds, or 30m, 1h30m, 2d, 1-12:00:00",
            code="invalid-duration",
        )
    if seconds > MAX_DURATION_SECONDS:
        raise InvalidInput(f"{written[:40]!r} is longer than ten years", code="invalid-duration")
    return seconds


def format_duration(seconds: int) -> str:
    """Return the shortest exact form: `1h30m`."""
    text = ""
    for unit, size in _UNITS.items():
        number, seconds = divmod(seconds, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


def _by_unit(written: str) -> int:
    match = _BY_UNIT.fullmatch(written)
    if match is None:
        return 0
    return sum(int(number or 0) * size for number, size in zip(match.groups(), _UNITS.values(), strict=True))


def _by_clock(written: str) -> int:
    match = _CLOCK.fullmatch(written)
    if match is None:
        return 0
    days, first, second, third = match.groups()
    if days is None and third is None:
        return int(first) * 60 + int(second)
    return int(days or 0) * 86_400 + int(first) * 3600 + int(second) * 60 + int(third or 0)
