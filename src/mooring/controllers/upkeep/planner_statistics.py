"""Up-to-date planner statistics on PostgreSQL while tables grow faster than autovacuum analyzes them."""

from __future__ import annotations

from mooring.coordination.fenced_database import FencedDatabase
from mooring.store.control.planner_statistics import analyze_grown_tables


class PlannerStatisticsLoop:
    def __init__(self, database: FencedDatabase) -> None:
        self._database = database

    async def once(self) -> bool:
        async with self._database.read() as connection:
            await analyze_grown_tables(connection)
        return False
