"""Schedule options of a request: start, time limits, retries. Options without effect are refused."""

from __future__ import annotations

from mooring.model.calendar.durations import MAX_DURATION_SECONDS, parse_duration
from mooring.model.errors import InvalidInput
from mooring.model.workloads.arrays import Array, parse_array
from mooring.model.workloads.dependencies import OnDependencyFailure
from mooring.model.workloads.lifetime.idleness import MIN_IDLE_SECONDS
from mooring.model.workloads.schedule import ScheduleOptions, parse_notice
from mooring.wire.fields import MAX_ARRAY
from mooring.wire.workloads.sessions import ExtendRequest
from mooring.wire.workloads.workloads import WorkloadRequest

_NEVER_ENDS = ("time", "idle_timeout", "signal", "array", "retries", "retry_on")


def schedule_of(request: WorkloadRequest) -> ScheduleOptions:
    """Return the schedule options, without the dependencies, which need a lookup."""
    if request.kind == "deployment":
        _check_deployment(request)
    if request.retry_on is not None and not request.retries:
        raise InvalidInput("retry_on needs retries, the maximum number of retries", code="invalid-retry")
    return ScheduleOptions(
        private=request.private,
        starts_at=request.starts_at,
        time_limit_seconds=None if request.time is None else seconds_of(request.time),
        idle_timeout_seconds=None if request.idle_timeout is None else _idle_timeout(request.idle_timeout),
        notice=None if request.signal is None else parse_notice(request.signal),
        array=None if request.array is None else _array(request, request.array),
        max_retries=request.retries,
        retry_on=None if request.retry_on is None else tuple(sorted(set(request.retry_on))),
        on_dependency_failure=OnDependencyFailure(request.on_dependency_failure),
        singleton=request.singleton,
    )


def seconds_of(written: str | int) -> int:
    return written if isinstance(written, int) else parse_duration(written)


def _idle_timeout(written: str | int) -> int:
    seconds = seconds_of(written)
    if seconds < MIN_IDLE_SECONDS:
        raise InvalidInput(
            f"idle_timeout must be at least {MIN_IDLE_SECONDS} seconds, because activity is measured once a minute",
            code="invalid-duration",
        )
    return seconds


def extended(name: str, limit: int | None, asked: ExtendRequest) -> int:
    """Return the new time limit."""
    if asked.time is not None:
        return seconds_of(asked.time)
    if limit is None:
        raise InvalidInput(f"{name!r} has no time limit to extend; set one with time", code="no-time-limit")
    assert asked.by is not None
    seconds = limit + seconds_of(asked.by)
    if seconds > MAX_DURATION_SECONDS:
        raise InvalidInput("a time limit is at most ten years", code="invalid-duration")
    return seconds


def _check_deployment(request: WorkloadRequest) -> None:
    given = [name for name in _NEVER_ENDS if getattr(request, name)]
    if given:
        raise InvalidInput(
            f"a deployment runs until it is removed: leave out {' and '.join(given)}, or submit a session",
            code="not-for-deployments",
        )


def _array(request: WorkloadRequest, written: str) -> Array:
    array = parse_array(written)
    if array.count > MAX_ARRAY:
        raise InvalidInput(f"an array has at most {MAX_ARRAY:,} tasks, not {array.count:,}", code="array-too-large")
    conflicting = {
        "replicas": request.replicas > 1,
        "gang": request.gang,
        "min_tasks": request.min_tasks is not None,
        "single_node": request.single_node,
        "on_insufficient fail": request.on_insufficient == "fail",
    }
    if wrong := [name for name, asked in conflicting.items() if asked]:
        raise InvalidInput(
            f"the tasks of an array start independently of each other: leave out {' and '.join(wrong)}",
            code="invalid-array",
        )
    return array
