"""Accounting: daily usage, recomputed from the ledger. No other loop waits for it."""

from __future__ import annotations

from mooring.clock import now
from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.accounting import usage


class AccountingLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> bool:
        """Recompute the usage of days that are not final. Return True while there is a backlog of older days."""
        at = now()
        # Outside the write transaction: while that is open, no mirror sees the commits of others.
        async with self._database.snapshot() as connection:
            days = await usage.open_days(connection, at)
            if not days:
                return False
            buckets = await usage.count(connection, days, at)

        await self._database.write(lambda connection, _: usage.replace(connection, days, buckets, at))
        return days[-1] < usage.day_of(at)
