"""Sessions as they travel, and the terms of every workload: when it starts, how long it takes, how often it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StringConstraints

from mooring.model.calendar.durations import MAX_DURATION_SECONDS
from mooring.wire.fields import Answer, Name, Request

_MAX_DEPENDENCIES = 100


def _no_number(value: object) -> object:
    if not isinstance(value, str | datetime):
        raise ValueError("write a time with its zone, such as 2026-05-01T12:00:00Z")
    return value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("write a time between the years 2 and 9998") from None


Duration = (
    Annotated[str, StringConstraints(min_length=1, max_length=40)]
    | Annotated[int, Field(ge=1, le=MAX_DURATION_SECONDS)]
)
Instant = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_no_number), AfterValidator(_in_utc)]
WorkloadReference = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]
SessionType = Literal["interactive", "batch", "inference", "system"]


class DependencyRequest(Request):
    """Another workload of the caller by id or name; in a batch also one of the same batch by name."""

    workload: WorkloadReference
    condition: Literal["after-ok", "after-any", "after-fail"] = "after-ok"


class ScheduleRequest(Request):
    """The schedule of a workload: its start, its time limits and its retries."""

    project: Name | None = None
    """None: the project that the login acts in."""
    private: bool = False
    """Exempt from quotas, with a cap of its own; this needs a right."""
    starts_at: Instant | None = None
    """Earliest start."""
    time: Duration | None = None
    """Maximum run time of each task: seconds, `30m`, `1-12:00:00`. None: the default of the pool or the policy."""
    idle_timeout: Duration | None = None
    """It ends, after a warning, when its tasks were idle and no user was connected for this long."""
    signal: Annotated[str, StringConstraints(max_length=40)] | None = None
    """The signal and the seconds before the time limit, `USR1@300`; also sent as a warning of an idle timeout."""
    dependencies: Annotated[list[DependencyRequest], Field(max_length=_MAX_DEPENDENCIES)] = []
    on_dependency_failure: Literal["cancel", "wait"] = "cancel"
    singleton: Name | None = None
    """Workloads of one user with the same word run one after the other."""
    booking: WorkloadReference | None = None
    """A booking by its id or name: the session runs in its capacity, from its start to its end, and nowhere else."""
    array: Annotated[str, StringConstraints(max_length=40)] | None = None
    """A task for each index: `0-9999`, `1-100:2`, and with `%50` at most fifty of them at the same time."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 0
    """Maximum retries of a failed task; the loss of a node uses no retry."""
    retry_on: Annotated[list[Annotated[int, Field(ge=-64, le=255)]], Field(min_length=1, max_length=64)] | None = None
    """Exit codes after which it is tried again. None: after any."""


class ExtendRequest(Request):
    """One of both: the new time limit, or how much longer than the present one."""

    time: Duration | None = None
    by: Duration | None = None


class DependencyView(Answer):
    id: UUID
    name: str
    condition: str
    status: str
    fate: str
    """`open`, `met`, or `broken` where it can never be met any more."""


class ArrayView(Answer):
    """The task with index n has the array's index first + step x n."""

    first: int
    step: int


class ScheduleView(Answer):
    """The fields of `ScheduleRequest` and their current state."""

    private: bool = False
    starts_at: datetime | None = None
    time_limit_seconds: int | None = None
    idle_timeout_seconds: int | None = None
    idle_since: datetime | None = None
    """The last activity of its tasks; of a running session."""
    idle_ends_at: datetime | None = None
    """If it stays idle."""
    signal: str | None = None
    deadline_at: datetime | None = None
    """The earliest deadline of its running tasks."""
    dependencies: list[DependencyView] = []
    on_dependency_failure: str = "cancel"
    singleton: str | None = None
    array: ArrayView | None = None
    parallel: int | None = None
    booking: UUID | None = None
    """The booking whose capacity it runs in."""
    retries: int = 0
    retry_on: list[int] | None = None
