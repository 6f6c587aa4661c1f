"""Draining: replicas leave a draining node as soon as their disruption budget allows, sessions at the drain deadline.

Tasks that a taint evicts leave too, and tasks without a time limit leave before a booking takes their capacity.
Workloads that can continue on another node are requeued.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.model.lifecycle import TaskStatus
from mooring.store.commit import replacements, transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.locked_workloads import lock_workloads
from mooring.store.commit.replacements import Replacement
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.nodes import drains, running_tasks
from mooring.store.nodes.drains import DepartingTask
from mooring.store.workloads import stopping

_log = structlog.get_logger(__name__)
_ACTOR = "draining"


class DrainingLoop:
    """The loop; its alarm is set to the next time at which a task has to leave."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()
        self.watching = True
        """Some node loses tasks, now or at a known time: only then do placements and starts concern this loop."""

    async def once(self) -> bool:
        async with self._database.read() as connection:
            found = await drains.find_departures(connection, now())
            departing = await _spared(connection, found.departing)
        self.alarm.set(found.next_at)
        self.watching = found.watching
        if departing:
            log_applied(await self._database.write(self._send_away))
        if found.warnings:
            await self._database.write(self._warn)
        if found.drained:
            for name in await self._database.write(self._note_drained):
                _log.info(f"Node {name} is drained: no task is left on it")
        return False

    async def _send_away(self, connection: Connection, term: int) -> Applied:
        at = now()
        # Read again: the node may have been resumed meanwhile.
        departing = (await drains.find_departures(connection, at)).departing
        # Lock all of them at once, ordered by id, before the steps that lock some of them.
        await lock_workloads(connection, {task.workload_id for task in departing})
        departing = await _spared(connection, departing)
        replaced = [
            Replacement(task.task_id, task.workload_id)
            for task in departing
            if task.service and task.status is not TaskStatus.RESERVED
        ]
        await replacements.replace_tasks(connection, replaced, actor=_ACTOR, now=at, term=term)
        changes = [stopping.evict(task.task_id, task.status, task.reason, requeue=task.again) for task in departing]
        return await transitions.apply(connection, changes, actor=_ACTOR, now=at, term=term)

    async def _warn(self, connection: Connection, term: int) -> None:
        at = now()
        warnings = (await drains.find_departures(connection, at)).warnings
        await drains.send_warnings(connection, warnings, actor=_ACTOR, now=at, term=term)

    async def _note_drained(self, connection: Connection, term: int) -> list[str]:
        at = now()
        drained = (await drains.find_departures(connection, at)).drained
        return await drains.note_drained(connection, drained, actor=_ACTOR, now=at, term=term)


async def _spared(connection: Connection, departing: Sequence[DepartingTask]) -> list[DepartingTask]:
    """Return the departing tasks without the running replicas that a disruption budget still protects."""
    if not any(task.patient for task in departing):
        return list(departing)
    budgets = dict((await running_tasks.budgets(connection)).allowed)
    leaving: list[DepartingTask] = []
    for task in departing:
        left = budgets.get(task.workload_id)
        if task.patient and left is not None:
            if left == 0:
                continue
            budgets[task.workload_id] = left - 1
        leaving.append(task)
    return leaving
