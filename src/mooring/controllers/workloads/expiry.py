"""Limits: end tasks that exceed their deadline, and workloads pending for too long or with a failed dependency."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.commit import transitions
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection
from mooring.store.nodes import pools
from mooring.store.workloads import expiry


class ExpiryLoop:
    """The loop; its alarm is set to the next deadline or pending timeout."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            overdue = await expiry.overdue(connection, at)
            timeouts = {
                pool.id: seconds
                for pool in await pools.all_pools(connection)
                if (seconds := pool.policy.pending_timeout_seconds)
            }
            expired, next_expiry = await expiry.expired(connection, timeouts, at)
            failed = await expiry.with_failed_dependency(connection)
        self.alarm.set(overdue.next_at, next_expiry)
        ended = False
        if overdue.changes:
            ended |= await self._write(
                lambda c, term: transitions.apply(c, overdue.changes, actor="limits", now=at, term=term)
            )
        if ends := {**expired, **failed}:
            ended |= await self._write(lambda c, term: expiry.end_waiting(c, ends, actor="limits", now=at, term=term))
        return ended

    async def _write(self, work: Callable[[Connection, int], Awaitable[Applied]]) -> bool:
        """Return whether anything changed, since there may be more then."""
        applied = await self._database.write(work)
        log_applied(applied)
        return bool(applied.tasks or applied.workloads)
