"""Holds: workloads with prepared placements are bound, and expired holds are released."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import structlog

from mooring.binding import preparing
from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.commit import holds
from mooring.store.commit.commit_logging import log_applied
from mooring.store.commit.status_changes import Applied
from mooring.store.core.engine import Connection, is_rejected_row

_log = structlog.get_logger(__name__)


class HoldsLoop:
    """Settles holds in the order of their creation. They are stored, so the next leader continues with them."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()

    async def once(self) -> bool:
        async with self._database.read() as connection:
            waiting = await holds.held_workloads(connection)
        for held in waiting:
            if held.ready or now() >= held.expires_at:
                await self._try_to_settle(held.workload_id)
        self.alarm.set(*(held.expires_at for held in waiting if held.expires_at > now()))
        return False

    async def _try_to_settle(self, workload_id: UUID) -> None:
        try:
            applied = await self._database.write(partial(self._settle, workload_id))
        except Exception as error:
            if not is_rejected_row(error):
                raise
            # One bad row does not block the rest.
            _log.error(f"The hold of workload {workload_id} cannot be resolved: {error}")
            return
        if applied is not None:
            log_applied(applied)

    async def _settle(self, workload_id: UUID, connection: Connection, term: int) -> Applied | None:
        return await preparing.settle(connection, workload_id, term=term, now=now())
