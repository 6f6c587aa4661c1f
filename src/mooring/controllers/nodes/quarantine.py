"""Quarantine: a task that the database does not know may be ended when its grace is over and nobody has decided."""

from __future__ import annotations

from uuid import UUID

import structlog

from mooring.clock import now
from mooring.controllers.loops import Alarm
from mooring.coordination.leadership import Office
from mooring.store import leadership, quarantine
from mooring.store.engine import Connection, Database

_log = structlog.get_logger(__name__)


class QuarantineLoop:
    """It wakes exactly when the next grace is over."""

    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            self.alarm.set(await quarantine.next_due(connection))
        if self.alarm.at is None or self.alarm.at > at:
            return False

        async def work(connection: Connection) -> list[UUID]:
            term = self._office.term
            await leadership.check_term(connection, term)
            return await quarantine.confirm(connection, quarantine.GRACE_OVER, due=at, now=at, term=term)

        for task_id in await self._database.write(work):
            _log.warning(f"Task {task_id}, which the database does not know, is ended: its grace is over")
        return True
