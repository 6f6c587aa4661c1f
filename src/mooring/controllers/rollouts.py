"""Rollouts: deployments come to their newest revision step by step; what retires is stopped when its time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.store import leadership, rollouts, transitions
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database
from mooring.store.narration import narrate


class RolloutsLoop:
    """It wakes exactly when the next task has to stop or the next rollout has taken too long."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            retirement = await rollouts.retired(connection, at)
            due = await rollouts.due(connection, at)
        self.alarm.set(retirement.next_at, due.next_at)
        moved = bool(retirement.changes) and await self._write(
            lambda c: transitions.apply(c, retirement.changes, actor="rollouts", now=at, term=self._office.term)
        )
        for workload_id in due.workload_ids:
            moved |= await self._write(
                partial(rollouts.advance, workload_id=workload_id, now=at, term=self._office.term)
            )
        return moved or bool(due.workload_ids)

    async def _write(self, work: Callable[[Connection], Awaitable[Applied]]) -> bool:
        """Whether some task was changed."""

        async def checked(connection: Connection) -> Applied:
            await leadership.check_term(connection, self._office.term)
            return await work(connection)

        applied = await self._database.write(checked)
        narrate(applied)
        return bool(applied.tasks)
