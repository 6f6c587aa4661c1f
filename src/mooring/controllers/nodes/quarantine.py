"""Quarantine: a task unknown to the database may be ended once its grace period is over without a decision."""

from __future__ import annotations

from uuid import UUID

import structlog

from mooring.clock import now
from mooring.controllers.leadership.loops import Alarm
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.core.engine import Connection
from mooring.store.nodes import quarantine

_log = structlog.get_logger(__name__)


class QuarantineLoop:
    """The loop; its alarm is set to the end of the next grace period."""

    def __init__(self, database: FencedDatabase) -> None:
        self._database = database
        self.alarm = Alarm()

    async def once(self) -> bool:
        at = now()
        async with self._database.read() as connection:
            self.alarm.set(await quarantine.next_due(connection))
        if self.alarm.at is None or self.alarm.at > at:
            return False

        async def work(connection: Connection, term: int) -> list[UUID]:
            return await quarantine.confirm(connection, quarantine.GRACE_OVER, due=at, now=at, term=term)

        for task_id in await self._database.write(work):
            _log.warning(f"Task {task_id}, which the database does not know, is stopped: its grace period has expired")
        return True
