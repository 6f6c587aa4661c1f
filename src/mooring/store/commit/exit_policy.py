"""What the end of a task means for its session: it comes again after a loss, is retried, waits lower, or is over."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mooring.model.durations import format_duration
from mooring.model.eviction import LEAVING
from mooring.model.idleness import IDLE_TIMEOUT, idle_for_too_long
from mooring.model.lifecycle import ON_THE_WAY_OUT, TaskStatus
from mooring.model.reasons import Reason
from mooring.model.retries import TIME_LIMIT, comes_again_after_loss, is_retried
from mooring.model.timeslots import TIMESLOT_OVER
from mooring.model.workloads import Kind
from mooring.store.changes import Change
from mooring.store.loading import LoadedTask, LoadedWorkload

_UNSTARTED = frozenset({TaskStatus.SCHEDULED, TaskStatus.PREPARING})


def of_task(change: Change, task: LoadedTask, workload: LoadedWorkload, lowered: set[UUID]) -> Change:
    """The change that ends a task, with what becomes of it; a workload that waits lower from now on is `lowered`."""
    if change.new is TaskStatus.CANCELLED and task.code == TIME_LIMIT:
        # Its agent stopped it as asked; to its owner it did not come to its end.
        return change._replace(new=TaskStatus.FAILED, reason=time_is_over(workload.time_limit_seconds))
    if change.new is TaskStatus.CANCELLED and task.code == TIMESLOT_OVER:
        return change._replace(reason=Reason(TIMESLOT_OVER, "Its timeslot is over", "timeslots", "never"))
    if change.new is TaskStatus.CANCELLED and task.code == IDLE_TIMEOUT:
        return change._replace(reason=idle_for_too_long(workload.idle_timeout_seconds))
    if change.new is TaskStatus.CANCELLED and task.code in LEAVING:
        # Who sent it away has said why, and that is kept.
        return change._replace(reason=None)
    if workload.kind != Kind.SESSION or workload.stopping or workload.status in ON_THE_WAY_OUT:
        return change
    code = change.reason.code if change.reason is not None else None
    if comes_again_after_loss(task.status, change.new, code, type=workload.type) or is_retried(
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


def time_is_over(limit_seconds: int | None) -> Reason:
    limit = "" if limit_seconds is None else f" of {format_duration(limit_seconds)}"
    return Reason(TIME_LIMIT, f"Its time limit{limit} is over", "limits", "never")
