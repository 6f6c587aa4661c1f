"""The window of a requested timeslot: half-open, in the future, and not empty."""

from __future__ import annotations

from datetime import datetime, timedelta

from mooring.model.calendar.durations import MAX_DURATION_SECONDS
from mooring.model.calendar.timeslots import Timeslot
from mooring.model.errors import InvalidInput
from mooring.services.submission.schedule_options import seconds_of
from mooring.wire.workloads.timeslots import WindowRequest

_MAX_DURATION = timedelta(seconds=MAX_DURATION_SECONDS)


def window_of(asked: WindowRequest, now: datetime, *, before: Timeslot | None = None) -> tuple[datetime, datetime]:
    """Return the window; `before` is the one to change: missing fields stay, and a new start alone moves it."""
    if asked.end is not None and asked.duration is not None:
        raise _wrong("give either the end or the length, not both")
    if before is None and asked.end is None and asked.duration is None:
        raise _wrong("give the end or the length")
    start = before.starts_at if before is not None and asked.start is None else _whole(asked.start or now)
    if start - now > _MAX_DURATION:
        raise _wrong("the start is more than ten years ahead")
    if asked.end is not None:
        end = _whole(asked.end)
    elif asked.duration is not None:
        end = start + timedelta(seconds=seconds_of(asked.duration))
    else:
        assert before is not None
        end = start + (before.ends_at - before.starts_at)
    moved = before is None or start != before.starts_at
    if moved and start < _whole(now):
        raise InvalidInput(f"the start, {start.isoformat(timespec='seconds')}, is in the past", code="window-past")
    if end <= start:
        raise _wrong("the end is before the start")
    if end <= now:
        raise InvalidInput(f"the end, {end.isoformat(timespec='seconds')}, is in the past", code="window-past")
    if end - now > _MAX_DURATION:
        raise _wrong("the window is longer than ten years")
    return start, end


def _whole(time: datetime) -> datetime:
    """Return the time in whole seconds: fractions would keep windows from being adjacent."""
    return time.replace(microsecond=0)


def duration_or_default(written: str | int | None, usual: int) -> int:
    """Return a duration, which may be 0; `usual` if none is given."""
    if written is None:
        return usual
    return 0 if written in (0, "0", "0s") else seconds_of(written)


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput(problem, code="invalid-window")
