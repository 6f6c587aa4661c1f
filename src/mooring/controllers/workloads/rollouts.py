"""Rollouts: move deployments to their newest revision step by step, and stop retired tasks when they are due."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from uuid import UUID

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.commit import transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.workloads import rollouts


class RolloutsLoop:
    """The loop; its alarm is set to the next stop of a retired task or timeout of a rollout."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()
        self.rolling = True
        """Some deployment is in a rollout, or may be."""

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            retirement = await rollouts.retired(connection, at)
            due = await rollouts.due(connection, at)
        self.alarm.set(retirement.next_at, due.next_at)
        self.rolling = due.rolling
        moved = bool(retirement.changes) and await self._write(
            lambda c, term: transitions.apply(c, retirement.changes, actor="rollouts", now=at, term=term)
        )
        for workload_id in due.workload_ids:
            moved |= await self._write(partial(_advance, workload_id, at))
        return moved or bool(due.workload_ids)

    async def _write(self, work: Callable[[Connection, int], Awaitable[Applied]]) -> bool:
        """Return whether any task changed."""
        applied = await self._database.write(work)
        log_applied(applied)
        return bool(applied.tasks)


async def _advance(workload_id: UUID, at: datetime, connection: Connection, term: int) -> Applied:
    return await rollouts.advance(connection, workload_id, now=at, term=term)
