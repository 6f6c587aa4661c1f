"""The consequences of the end of a task: replacement after a loss, retry, requeue at a lower priority, or none."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mooring.model.calendar.durations import format_duration
from mooring.model.calendar.timeslots import TIMESLOT_OVER
from mooring.model.lifecycle import TERMINATING_OR_ENDED, TaskStatus
from mooring.model.nodes.eviction import LEAVING
from mooring.model.reasons import Reason
from mooring.model.workloads.lifetime.idleness import IDLE_TIMEOUT, idle_for_too_long
from mooring.model.workloads.lifetime.retries import EVICTED, TIME_LIMIT, is_replaced_after_loss, is_retried, uses_retry
from mooring.model.workloads.workload import Kind
from mooring.store.commit.locked_workloads import LoadedTask, LoadedWorkload
from mooring.store.commit.status_changes import Change

_UNSTARTED = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING})


def apply(change: Change, task: LoadedTask, workload: LoadedWorkload, lowered: set[UUID]) -> Change:
    """Return the change that ends a task, with its consequences. `lowered`: workloads whose priority has dropped."""
    if change.new is TaskStatus.CANCELLED and task.code == TIME_LIMIT:
        # Its agent stopped it as requested; for its owner it did not complete.
        return change._replace(new=TaskStatus.FAILED, reason=time_limit_reached(workload.time_limit_seconds))
    if change.new is TaskStatus.CANCELLED and task.code == TIMESLOT_OVER:
        return change._replace(reason=Reason(TIMESLOT_OVER, "The booking has ended", "timeslots", "never"))
    if change.new is TaskStatus.CANCELLED and task.code == IDLE_TIMEOUT:
        return change._replace(reason=idle_for_too_long(workload.idle_timeout_seconds))
    if change.new is TaskStatus.CANCELLED and task.code in LEAVING:
        # The reason for which it was evicted is already stored.
        return change._replace(reason=None)
    if workload.kind != Kind.SESSION or workload.stopping or workload.status in TERMINATING_OR_ENDED:
        return change
    code = change.reason.code if change.reason is not None else None
    if task.status is TaskStatus.TERMINATING and task.requeue and uses_retry(change.new, code):
        # It is replaced whether a retry is left or not, so its end must not use one. Its failure is often a
        # consequence of the eviction, for example of a peer that has already left.
        return change._replace(reason=_failed_while_leaving(change.reason))
    if is_replaced_after_loss(task.status, change.new, code, type=workload.type) or is_retried(
        task.status,
        change.new,
        change.exit_code,
        code,
        failures=task.failures,
        max_retries=workload.max_retries,
        retry_on=None if workload.retry_on is None else msgspec.json.decode(workload.retry_on),
    ):
        return change._replace(requeue=True)
    if change.new is TaskStatus.FAILED and task.status in _UNSTARTED and workload.deprioritise:
        reason = change.reason or Reason("start-failed", "the task did not start", "agent")
        if workload.id not in lowered:
            lowered.add(workload.id)
            reason = workload.lower(reason)
        return change._replace(requeue=True, reason=reason)
    return change


def time_limit_reached(limit_seconds: int | None) -> Reason:
    limit = "" if limit_seconds is None else f" of {format_duration(limit_seconds)}"
    return Reason(TIME_LIMIT, f"The time limit{limit} has been reached", "limits", "never")


def _failed_while_leaving(reason: Reason | None) -> Reason:
    message = "failed" if reason is None else reason.message
    return Reason(EVICTED, f"{message} after it was evicted", "lifecycle")
