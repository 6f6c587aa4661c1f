"""The window that a request means: half-open, to come, and not empty."""

from __future__ import annotations

from datetime import datetime, timedelta

from mooring.intake.terms import seconds_of
from mooring.model.durations import LONGEST_SECONDS
from mooring.model.errors import InvalidInput
from mooring.model.timeslots import Timeslot
from mooring.wire.timeslots import WindowRequest

_LONGEST = timedelta(seconds=LONGEST_SECONDS)


def window_of(asked: WindowRequest, now: datetime, *, before: Timeslot | None = None) -> tuple[datetime, datetime]:
    """`before`: what is to be changed: what is not said stays as it is, and another start alone moves it as it is."""
    if asked.end is not None and asked.duration is not None:
        raise _wrong("say either when it ends or how long it is, not both")
    if before is None and asked.end is None and asked.duration is None:
        raise _wrong("say when it ends, or how long it is")
    start = before.starts_at if before is not None and asked.start is None else _whole(asked.start or now)
    if start - now > _LONGEST:
        raise _wrong("nobody books ten years ahead")
    if asked.end is not None:
        end = _whole(asked.end)
    elif asked.duration is not None:
        end = start + timedelta(seconds=seconds_of(asked.duration))
    else:
        assert before is not None
        end = start + (before.ends_at - before.starts_at)
    moved = before is None or start != before.starts_at
    if moved and start < _whole(now):
        raise InvalidInput(
            f"it would begin at {start.isoformat(timespec='seconds')}, which is past", code="window-past"
        )
    if end <= start:
        raise _wrong("it would end before it begins")
    if end <= now:
        raise InvalidInput(f"it would end at {end.isoformat(timespec='seconds')}, which is past", code="window-past")
    if end - now > _LONGEST:
        raise _wrong("nobody books for more than ten years")
    return start, end


def _whole(time: datetime) -> datetime:
    """The second that a time is in: parts of one would keep the next window from beginning when one ends."""
    return time.replace(microsecond=0)


def kept_seconds(written: str | int | None, usual: int) -> int:
    """A length of time that may also be 0; `usual` where nothing is said."""
    if written is None:
        return usual
    return 0 if written in (0, "0", "0s") else seconds_of(written)


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid-window")
