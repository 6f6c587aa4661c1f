"""Limits: what runs past its deadline is ended, and so is what waits too long or in vain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.store import leadership, limits, pools, transitions
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database
from mooring.store.narration import narrate


class LimitsLoop:
    """It wakes exactly when the next deadline or timeout is over."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            overdue = await limits.overdue(connection, at)
            timeouts = {
                pool.id: seconds
                for pool in await pools.all_pools(connection)
                if (seconds := pool.policy.pending_timeout_seconds)
            }
            expired, next_expiry = await limits.expired(connection, timeouts, at)
            forlorn = await limits.forlorn(connection)
        self.alarm.set(overdue.next_at, next_expiry)
        ended = False
        if overdue.changes:
            term = self._office.term
            ended |= await self._write(
                lambda c: transitions.apply(c, overdue.changes, actor="limits", now=at, term=term)
            )
        if ends := {**expired, **forlorn}:
            ended |= await self._write(
                lambda c: limits.end_waiting(c, ends, actor="limits", now=at, term=self._office.term)
            )
        return ended

    async def _write(self, work: Callable[[Connection], Awaitable[Applied]]) -> bool:
        """Whether something was changed; there may be more of it then."""

        async def checked(connection: Connection) -> Applied:
            await leadership.check_term(connection, self._office.term)
            return await work(connection)

        applied = await self._database.write(checked)
        narrate(applied)
        return bool(applied.tasks or applied.workloads)
