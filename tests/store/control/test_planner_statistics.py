"""The statistics from which PostgreSQL plans statements."""

from sqlalchemy import text

from mooring.clock import now
from mooring.store.control import events
from mooring.store.control.planner_statistics import analyze_grown_tables
from mooring.store.core.engine import Connection, Database
from mooring.store.core.ids import new_id
from tests.store.databases import on_postgresql


@on_postgresql
async def test_a_table_is_analyzed_again_only_after_it_has_doubled(database: Database):
    await write_events(database, 400)
    assert await analyzed(database) == [], "any plan is fast for a small table"
    await write_events(database, 200)
    assert await analyzed(database) == ["public.events"]
    assert await estimated_rows(database) == 600
    assert await analyzed(database) == []
    await write_events(database, 1000)
    assert await analyzed(database) == []
    await write_events(database, 300)
    assert await analyzed(database) == ["public.events"]
    assert await estimated_rows(database) == 1900


async def write_events(database: Database, number: int) -> None:
    async def write(connection: Connection) -> None:
        await events.append(connection, [events.NewEvent("node", new_id(), 1, "x") for _ in range(number)], now())
        # Otherwise the counts arrive up to ten seconds later.
        await connection.execute(text("SELECT pg_stat_force_next_flush()"))

    await database.write(write)


async def analyzed(database: Database) -> list[str]:
    async with database.read() as connection:
        return await analyze_grown_tables(connection)


async def estimated_rows(database: Database) -> int:
    query = text("SELECT reltuples FROM pg_class WHERE relname = 'events'")
    async with database.read() as connection:
        return int((await connection.execute(query)).scalar_one())
