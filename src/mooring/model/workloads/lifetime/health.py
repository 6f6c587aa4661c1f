"""The health of a workload: whether it does what it was submitted for, and whether its tasks crash in a loop. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from mooring.model.lifecycle import TERMINATING_OR_ENDED, TaskStatus, WorkloadStatus
from mooring.model.workloads.lifetime.retries import is_image_trouble
from mooring.model.workloads.workload import Kind

RAN_WELL = timedelta(seconds=60)
"""A task that ran this long did not crash at its start."""
LOOPS_AFTER = 2
"""Ends soon after a start, in a row, from which on a task counts as crash-looping."""


class Health(StrEnum):
    HEALTHY = "healthy"
    STARTING = "starting"
    DEGRADED = "degraded"
    """It runs with fewer tasks than it wants, or some of its tasks have failed."""
    CRASH_LOOPING = "crash-looping"
    IMAGE_PULL_FAILING = "image-pull-failing"
    SCALED_TO_ZERO = "scaled-to-zero"
    """A deployment that wants no replicas: nothing of it runs, and nothing is missing."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The tasks of a workload that ended before they should, and the last end of the worst of them."""

    looping: int
    """Number of tasks that are in a crash loop."""
    restarts: int
    """Restarts of its tasks, in place and by replacement, since they last ran well."""
    exit_code: int | None
    code: str
    reason: str
    retry_at: datetime | None
    """The next start of that task; None: it has been started."""


@dataclass(frozen=True, slots=True)
class Members:
    """The current tasks of a workload, counted."""

    wanted: int
    running: int
    ready: int
    succeeded: int = 0
    failed: int = 0
    """Tasks that ended badly and are not replaced."""


def health_of(
    kind: str, status: str, members: Members, trouble: Trouble | None, *, array: bool = False
) -> Health | None:
    """Return the health of a workload; None: it has ended or is being stopped.

    Its status alone says less: it stays RUNNING as long as one task runs, and a process that crashes at its start is
    RUNNING whenever someone looks.
    """
    if status in TERMINATING_OR_ENDED:
        return None
    if kind == Kind.DEPLOYMENT and members.wanted == 0:
        return Health.SCALED_TO_ZERO
    if trouble is not None and trouble.looping and not array:
        return Health.IMAGE_PULL_FAILING if is_image_trouble(trouble.code) else Health.CRASH_LOOPING
    if array and (members.failed or (trouble is not None and trouble.looping)):
        return Health.DEGRADED
    if status != WorkloadStatus.RUNNING:
        return Health.STARTING
    up = members.ready if kind == Kind.DEPLOYMENT else members.running + members.succeeded
    return Health.HEALTHY if array or up >= members.wanted else Health.DEGRADED


def crashes_after(
    status: TaskStatus, started_at: datetime | None, ended_at: datetime | None, *, earlier: int, own: int
) -> int:
    """Return how many ends in a row were soon after a start, this end of a task included.

    `earlier`: those of the attempts before it. `own`: those that its agent has counted in it.
    """
    if status not in (TaskStatus.FAILED, TaskStatus.SUCCEEDED):
        # Lost, evicted or stopped: not by its own doing, which proves nothing either way.
        return earlier + own
    if own:
        return earlier + own
    ran_well = started_at is not None and ended_at is not None and ended_at - started_at >= RAN_WELL
    return 0 if ran_well else earlier + 1
