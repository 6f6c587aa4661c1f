"""What a request says about its start, its time and its retries. What could have no effect is refused."""

from __future__ import annotations

from mooring.model.arrays import Array, parse_array
from mooring.model.dependencies import OnDependencyFailure
from mooring.model.durations import LONGEST_SECONDS, parse_duration
from mooring.model.errors import InvalidInput
from mooring.model.idleness import LEAST_SECONDS
from mooring.model.terms import Terms, parse_notice
from mooring.wire.api import WorkloadRequest
from mooring.wire.fields import MAX_ARRAY
from mooring.wire.sessions import ExtendRequest

_NEVER_ENDS = ("time", "idle_timeout", "signal", "array", "retries", "retry_on")


def terms_of(request: WorkloadRequest) -> Terms:
    """Without its dependencies, which others have to be asked about."""
    if request.kind == "deployment":
        _check_deployment(request)
    if request.retry_on is not None and not request.retries:
        raise InvalidInput(
            "retry_on says after which exit codes, but not how often: give retries", code="invalid-retry"
        )
    return Terms(
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
    if seconds < LEAST_SECONDS:
        raise InvalidInput(
            f"idle_timeout: whether a task is idle is known by the minute, so it is at least {LEAST_SECONDS} seconds",
            code="invalid-duration",
        )
    return seconds


def extended(name: str, limit: int | None, asked: ExtendRequest) -> int:
    """The time limit that is asked for in place of the present one."""
    if asked.time is not None:
        return seconds_of(asked.time)
    if limit is None:
        raise InvalidInput(f"{name!r} has no time limit that could be longer; give one", code="no-time-limit")
    assert asked.by is not None
    seconds = limit + seconds_of(asked.by)
    if seconds > LONGEST_SECONDS:
        raise InvalidInput("a time limit is at most ten years", code="invalid-duration")
    return seconds


def _check_deployment(request: WorkloadRequest) -> None:
    given = [name for name in _NEVER_ENDS if getattr(request, name)]
    if given:
        raise InvalidInput(
            f"a deployment is kept running, so {' and '.join(given)} cannot be meant: leave out, or submit a session",
            code="not-for-deployments",
        )


def _array(request: WorkloadRequest, written: str) -> Array:
    array = parse_array(written)
    if array.count > MAX_ARRAY:
        raise InvalidInput(f"an array has at most {MAX_ARRAY:,} tasks, not {array.count:,}", code="array-too-large")
    together = {
        "replicas": request.replicas > 1,
        "gang": request.gang,
        "min_tasks": request.min_tasks is not None,
        "single_node": request.single_node,
        "on_insufficient fail": request.on_insufficient == "fail",
    }
    if wrong := [name for name, asked in together.items() if asked]:
        raise InvalidInput(
            f"the tasks of an array start as they find room, each for itself: leave out {' and '.join(wrong)}",
            code="invalid-array",
        )
    return array
