"""Accounting: what was used on which day, counted anew from the ledger. It only looks: nothing else waits for it."""

from __future__ import annotations

from mooring.clock import now
from mooring.coordination.leadership import Office
from mooring.store import leadership, usage
from mooring.store.engine import Connection, Database


class AccountingLoop:
    def __init__(self, database: Database, office: Office) -> None:
        self._database = database
        self._office = office

    async def once(self) -> bool:
        """Count the days that are not settled; True while older ones have to be caught up with."""
        at = now()
        # Outside of the transaction that writes: as long as that one is open, no mirror sees what others commit.
        async with self._database.snapshot() as connection:
            days = await usage.open_days(connection, at)
            if not days:
                return False
            buckets = await usage.count(connection, days, at)

        async def work(connection: Connection) -> None:
            await leadership.check_term(connection, self._office.term)
            await usage.replace(connection, days, buckets, at)

        await self._database.write(work)
        return days[-1] < usage.day_of(at)
