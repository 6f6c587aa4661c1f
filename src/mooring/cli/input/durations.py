"""Times on the command line: `30m`, `1h30m`, `90s`, or plain seconds, everywhere the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mooring.model.errors import InvalidInput


def seconds_at_least(minimum: float) -> Callable[[Any], float]:
    """Return a parser of a duration as seconds. Fractions are possible in plain seconds only."""

    def parse(written: Any) -> float:
        seconds = written if isinstance(written, int | float) else parse_seconds(written)
        if seconds < minimum:
            raise InvalidInput(f"{written!r} is shorter than {minimum:g} seconds", code="invalid-duration")
        return float(seconds)

    return parse


def parse_seconds(written: str) -> float:
    from mooring.model.calendar.durations import parse_duration

    whole, _, fraction = written.partition(".")
    if whole.isdecimal() and written.isascii() and (not fraction or fraction.isdecimal()) and len(written) <= 12:
        return float(written)
    return parse_duration(written)
