"""The seat as a lease row in the database: highly available without a further service."""

from __future__ import annotations

import asyncio

import structlog

from mooring.clock import monotonic
from mooring.coordination.election import Claim, Seat
from mooring.store import leadership
from mooring.store.engine import Connection, Database

_log = structlog.get_logger(__name__)
_LOOK_SECONDS = 0.5


class LeaseElection:
    standbys = True

    def __init__(self, database: Database, candidate: str, ttl: float) -> None:
        self._database = database
        self._candidate = candidate
        self._ttl = ttl

    async def campaign(self) -> Seat:
        while True:
            asked_at = monotonic()
            try:
                if await self._database.write(self._ask, wakes=False):
                    return Seat(
                        Claim("database"), ttl=self._ttl, renew=self._renew, release=self._release, asked_at=asked_at
                    )
            except Exception as error:
                _log.warning("Cannot campaign for leadership", error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        return None

    async def _ask(self, connection: Connection) -> bool:
        return await leadership.lease(connection, self._candidate, self._ttl)

    async def _renew(self) -> bool:
        return await self._database.write(lambda c: leadership.renew(c, self._candidate, self._ttl), wakes=False)

    async def _release(self) -> None:
        await self._database.write(lambda c: leadership.release(c, self._candidate), wakes=False)
