"""Retention: events that every reader has seen long ago are forgotten, as are answers that nobody asks for again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.store import feed, leadership, submissions
from mooring.store.engine import Connection, Database


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept."""

    events: timedelta = timedelta(hours=24)
    submissions: timedelta = timedelta(hours=72)


class RetentionLoop:
    def __init__(self, database: Database, office: Office, retention: Retention) -> None:
        self._database = database
        self._office = office
        self._retention = retention

    async def once(self) -> bool:
        async def work(connection: Connection) -> None:
            await leadership.check_term(connection, self._office.term)
            at = now()
            await feed.purge(connection, at - self._retention.events)
            await submissions.purge(connection, at - self._retention.submissions)

        await self._database.write(work)
        return False
