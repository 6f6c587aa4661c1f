"""Retention: events that every reader has seen long ago are forgotten."""

from __future__ import annotations

from datetime import timedelta

from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.store import events, leadership
from mooring.store.engine import Connection, Database


class RetentionLoop:
    def __init__(self, database: Database, office: Office, hours: float) -> None:
        self._database = database
        self._office = office
        self._age = timedelta(hours=hours)

    async def once(self) -> bool:
        async def work(connection: Connection) -> int:
            await leadership.check_term(connection, self._office.term)
            return await events.purge(connection, now() - self._age)

        await self._database.write(work)
        return False
