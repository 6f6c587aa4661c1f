"""Holds: places that are ready are taken, and those whose time is over are given up."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import structlog

from mooring.binding import preparing
from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.store import holds, leadership
from mooring.store.changes import Applied
from mooring.store.engine import Connection, Database, is_refused
from mooring.store.narration import narrate

_log = structlog.get_logger(__name__)


class HoldsLoop:
    """Who was held first is admitted first. A leader that comes later finds the holds and goes on with them."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        async with self._database.read() as connection:
            waiting = await holds.waiting(connection)
        for held in waiting:
            if held.ready or now() >= held.expires_at:
                await self._try_to_settle(held.workload_id)
        self.alarm.set(*(held.expires_at for held in waiting if held.expires_at > now()))
        return False

    async def _try_to_settle(self, workload_id: UUID) -> None:
        try:
            applied = await self._database.write(partial(self._settle, workload_id))
        except Exception as error:
            if not is_refused(error):
                raise
            # One bad row never blocks the rest.
            _log.error(f"The place of workload {workload_id} cannot be settled: {error}")
            return
        if applied is not None:
            narrate(applied)

    async def _settle(self, workload_id: UUID, connection: Connection) -> Applied | None:
        await leadership.check_term(connection, self._office.term)
        return await preparing.settle(connection, workload_id, term=self._office.term, now=now())
