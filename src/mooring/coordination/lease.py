"""The leadership lease as a row in the database: high availability without another service."""

from __future__ import annotations

import asyncio

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Lease
from mooring.coordination.outage import Outage
from mooring.store.control import leadership
from mooring.store.core.engine import Database

POLL_SECONDS = 0.5
"""Interval of polling for a free lease."""


class LeaseRow:
    """One candidate's access to the row."""

    def __init__(self, database: Database, candidate: str, ttl: float) -> None:
        self._database = database
        self._candidate = candidate
        self.ttl = ttl

    async def take(self) -> bool:
        return await self._database.write(lambda c: leadership.lease(c, self._candidate, self.ttl), notify=False)

    async def renew(self) -> bool:
        return await self._database.write(lambda c: leadership.renew(c, self._candidate, self.ttl), notify=False)

    async def release(self, reason: str) -> None:
        await self._database.write(lambda c: leadership.release(c, self._candidate, reason), notify=False)


class LeaseElection:
    standbys = True

    def __init__(self, database: Database, candidate: str, ttl: float) -> None:
        self._row = LeaseRow(database, candidate, ttl)
        self._outage = Outage("The database", "this server cannot campaign for leadership")

    @property
    def outage(self) -> Outage | None:
        return None if self._outage.since is None else self._outage

    async def campaign(self) -> Lease:
        row = self._row
        while True:
            asked_at = monotonic()
            try:
                taken = await row.take()
            except Exception as error:
                self._outage.failed(error)
            else:
                self._outage.over()
                if taken:
                    return Lease(
                        Claim("database"), ttl=row.ttl, renew=row.renew, release=row.release, asked_at=asked_at
                    )
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        return None
