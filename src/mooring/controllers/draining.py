"""Draining: replicas leave a draining node as soon as their workload can spare them, sessions when its time is over,
and all leave that a taint evicts. What can go on elsewhere does.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.model.lifecycle import TaskStatus
from mooring.store import drains, leadership, residents, successors, transitions, workloads
from mooring.store.changes import Applied
from mooring.store.drains import Leaver
from mooring.store.engine import Connection, Database
from mooring.store.loading import lock_workloads
from mooring.store.narration import narrate
from mooring.store.successors import Successor

_log = structlog.get_logger(__name__)
_ACTOR = "draining"


class DrainingLoop:
    """It wakes exactly when the next task has to leave by time alone."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        async with self._database.read() as connection:
            look = await drains.look(connection, now())
            leavers = await _spared(connection, look.leavers)
        self.alarm.set(look.next_at)
        if leavers:
            narrate(await self._database.write(self._send_away))
        if look.drained:
            for name in await self._database.write(self._note_drained):
                _log.info(f"Node {name} is drained: nothing is left on it")
        return False

    async def _send_away(self, connection: Connection) -> Applied:
        term = await self._checked_term(connection)
        at = now()
        # Looked at again: the node may have been resumed meanwhile.
        leavers = (await drains.look(connection, at)).leavers
        # All of them at once, in the order of their ids, before the steps that lock some of them.
        await lock_workloads(connection, {leaver.workload_id for leaver in leavers})
        leavers = await _spared(connection, leavers)
        replaced = [
            Successor(leaver.task_id, leaver.workload_id)
            for leaver in leavers
            if leaver.service and leaver.status is not TaskStatus.RESERVED
        ]
        await successors.succeed(connection, replaced, actor=_ACTOR, now=at, term=term)
        changes = [
            workloads.displacing(leaver.task_id, leaver.status, leaver.reason, requeue=leaver.again)
            for leaver in leavers
        ]
        return await transitions.apply(connection, changes, actor=_ACTOR, now=at, term=term)

    async def _note_drained(self, connection: Connection) -> list[str]:
        term = await self._checked_term(connection)
        at = now()
        drained = (await drains.look(connection, at)).drained
        return await drains.note_drained(connection, drained, actor=_ACTOR, now=at, term=term)

    async def _checked_term(self, connection: Connection) -> int:
        await leadership.check_term(connection, self._office.term)
        return self._office.term


async def _spared(connection: Connection, leavers: Sequence[Leaver]) -> list[Leaver]:
    """Without those whose workload cannot spare them yet: a replica that runs leaves when enough others do."""
    if not any(leaver.patient for leaver in leavers):
        return list(leavers)
    budgets = dict((await residents.budgets(connection)).allowed)
    leaving: list[Leaver] = []
    for leaver in leavers:
        left = budgets.get(leaver.workload_id)
        if leaver.patient and left is not None:
            if left == 0:
                continue
            budgets[leaver.workload_id] = left - 1
        leaving.append(leaver)
    return leaving
