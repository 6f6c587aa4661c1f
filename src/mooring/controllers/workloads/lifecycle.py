"""Lifecycle: stop the remaining tasks of a terminating workload, and replace ended tasks that are to run again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mooring.clock import now
from mooring.concurrency import backoff
from mooring.controllers.leadership.loops import Iteration
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import WORKLOAD_ENDS, Reason
from mooring.model.workloads.lifetime.retries import is_image_refused, is_loss
from mooring.store.commit import replacements, transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.replacements import EndedTask, Replacement
from mooring.store.commit.status_changes import Applied, Change
from mooring.store.core.engine import Connection
from mooring.store.workloads import stopping

_FIRST_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 60.0
_MAX_WITHOUT_IMAGE_SECONDS = 600.0
"""Maximum backoff while the image is refused. The deployment starts by itself once the image is available."""

_ENDS = Reason(WORKLOAD_ENDS, "Another task of the workload ended", "lifecycle", "never")
_AGAIN = Reason(
    "starts-again", "Another task of the workload was lost or retried; all start again together", "lifecycle", "never"
)


class LifecycleLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> Iteration:
        stopped = await self._stop_the_rest()
        replaced = await self._replace()
        return Iteration(more=stopped or replaced, announced=stopped or replaced)

    async def _stop_the_rest(self) -> bool:
        async with self._database.read() as connection:
            terminating = await replacements.tasks_of_terminating_workloads(connection)
            again = await replacements.gang_tasks_to_restart(connection)
        changes = [stopping.stop_change(task_id, status, _ENDS) for task_id, status in terminating]
        changes += [stopping.evict(task_id, status, _AGAIN, requeue=True) for task_id, status in again]
        return await self._apply(changes)

    async def _apply(self, changes: Sequence[Change]) -> bool:
        if not changes:
            return False

        async def work(connection: Connection, term: int) -> Applied:
            return await transitions.apply(connection, changes, actor="lifecycle", now=now(), term=term)

        applied = await self._database.write(work)
        log_applied(applied)
        return bool(applied.tasks)

    async def _replace(self) -> bool:
        async with self._database.read() as connection:
            ended = await replacements.tasks_to_replace(connection)
        if not ended:
            return False

        async def work(connection: Connection, term: int) -> int:
            at = now()
            new = [
                Replacement(task.task_id, task.workload_id, not_before(task, at), task.failed, task.crashes_in_a_row)
                for task in ended
            ]
            return await replacements.replace_tasks(connection, new, actor="lifecycle", now=at, term=term)

        return await self._database.write(work) > 0


def not_before(ended: EndedTask, at: datetime) -> datetime | None:
    """Return the earliest start of the replacement: None (now), or a growing backoff if the task ended early."""
    crashes = ended.crashes_in_a_row
    if (
        ended.status not in (TaskStatus.FAILED, TaskStatus.SUCCEEDED)
        or is_loss(ended.status, ended.code)
        or not crashes
    ):
        return None
    max_seconds = _MAX_WITHOUT_IMAGE_SECONDS if is_image_refused(ended.code) else _MAX_BACKOFF_SECONDS
    return at + timedelta(seconds=backoff.delay(crashes, _FIRST_BACKOFF_SECONDS, max_seconds, jitter=0))
