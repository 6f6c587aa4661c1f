"""Lifecycle: the tasks of a failing workload are stopped, and tasks that ended and come again are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from mooring.clock import now
from mooring.controllers.loops import Turn
from mooring.coordination.leadership import Office
from mooring.model.lifecycle import TaskStatus
from mooring.model.reasons import WORKLOAD_ENDS, Reason
from mooring.model.retries import is_image_refused
from mooring.store import leadership, successors, transitions, workloads
from mooring.store.changes import Applied, Change
from mooring.store.engine import Connection, Database
from mooring.store.narration import narrate
from mooring.store.successors import Ended, Successor

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0
_LONGEST_WITHOUT_IMAGE_SECONDS = 600.0
"""A deployment comes by itself when somebody has put its image there, and asks for it seldom until then."""
_MOST_DOUBLINGS = 16
"""Attempts are counted for ever; a float is not large enough for their power of two."""
_RAN_WELL = timedelta(seconds=60)
"""A replica that ran this long did not fail to start: its replacement does not wait."""

_ENDS = Reason(WORKLOAD_ENDS, "Another task of the workload ended", "lifecycle", "never")
_AGAIN = Reason("starts-again", "Another task of the workload is gone; all start again together", "lifecycle", "never")


class LifecycleLoop:
    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office

    async def once(self) -> Turn:
        stopped = await self._stop_the_rest()
        replaced = await self._replace()
        return Turn(more=stopped or replaced, announced=stopped or replaced)

    async def _stop_the_rest(self) -> bool:
        async with self._database.read() as connection:
            ending = await successors.half_stopped(connection)
            again = await successors.left_behind(connection)
        changes = [workloads.ending(task_id, status, _ENDS) for task_id, status in ending]
        changes += [workloads.displacing(task_id, status, _AGAIN, requeue=True) for task_id, status in again]
        return await self._apply(changes)

    async def _apply(self, changes: Sequence[Change]) -> bool:
        if not changes:
            return False

        async def work(connection: Connection) -> Applied:
            await leadership.check_term(connection, self._office.term)
            return await transitions.apply(connection, changes, actor="lifecycle", now=now(), term=self._office.term)

        applied = await self._database.write(work)
        narrate(applied)
        return bool(applied.tasks)

    async def _replace(self) -> bool:
        async with self._database.read() as connection:
            ended = await successors.ended_replicas(connection)
        if not ended:
            return False

        async def work(connection: Connection) -> int:
            await leadership.check_term(connection, self._office.term)
            at = now()
            new = [Successor(task.task_id, task.workload_id, not_before(task, at), task.failed) for task in ended]
            return await successors.succeed(connection, new, actor="lifecycle", now=at, term=self._office.term)

        return await self._database.write(work) > 0


def not_before(ended: Ended, at: datetime) -> datetime | None:
    """When the replacement may be placed: at once, unless it failed soon after its start; then later each time."""
    if ended.status not in (TaskStatus.FAILED, TaskStatus.SUCCEEDED):
        return None
    if ended.started_at and ended.ended_at and ended.ended_at - ended.started_at >= _RAN_WELL:
        return None
    doublings = min(ended.attempt - 1, _MOST_DOUBLINGS)
    longest = _LONGEST_WITHOUT_IMAGE_SECONDS if is_image_refused(ended.code) else _LONGEST_BACKOFF_SECONDS
    seconds = min(_FIRST_BACKOFF_SECONDS * 2**doublings, longest)
    return at + timedelta(seconds=seconds)
