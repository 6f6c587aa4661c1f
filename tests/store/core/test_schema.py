"""The migrations make the tables of this version, and take them back."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from sqlalchemy import insert, inspect, text

from mooring import maintenance
from mooring.clock import now
from mooring.model.errors import Conflict
from mooring.model.pools import HeadOfLine, PoolPolicy
from mooring.store import pools, schema
from mooring.store.engine import Database
from mooring.store.ids import new_id
from mooring.store.tables import metadata, status_history
from tests.store.harbour import Harbour


async def tables(database: Database) -> set[str]:
    async with database.engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def test_an_empty_database_is_brought_to_the_newest_schema_and_back(database_url: str):
    database = Database(database_url)
    try:
        assert await schema.current(database.engine) is None
        for _ in range(2):
            await schema.upgrade(database.engine)
            assert await schema.current(database.engine) == schema.newest()
            assert await tables(database) >= set(metadata.tables)
            await schema.check(database.engine)
            await schema.downgrade(database.engine, "base")
            assert await schema.current(database.engine) is None
            assert await tables(database) <= {"alembic_version"}
    finally:
        await database.close()


@pytest.fixture
async def own_database(database_url: str) -> AsyncIterator[Database]:
    """A migrated database that a test may spoil."""
    database = Database(database_url)
    await schema.upgrade(database.engine)
    yield database
    await database.close()


async def test_upgrading_again_changes_nothing(database: Database):
    await schema.upgrade(database.engine)
    await schema.check(database.engine)


async def test_a_table_that_no_migration_knows_is_noticed(own_database: Database):
    async with own_database.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE holds ADD COLUMN surprise INTEGER")
    with pytest.raises(Exception, match="surprise"):
        await schema.check(own_database.engine)


async def test_a_process_goes_on_when_a_newer_version_expands_the_tables_under_it(own_database: Database):
    harbour = await Harbour.open(own_database)
    await harbour.node("n1")
    await harbour.run(await harbour.submit("before"))
    async with own_database.engine.begin() as connection:
        for table in ("nodes", "workloads", "tasks", "resource_allocations", "events", "status_history", "leadership"):
            await connection.execute(text(f"ALTER TABLE {table} ADD COLUMN of_the_next_version INTEGER DEFAULT 0"))
        await connection.execute(text("CREATE TABLE things_of_the_next_version (id INTEGER PRIMARY KEY)"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await harbour.run(await harbour.submit("after"))
    assert await harbour.findings() == []
    # Who starts now is told that it is the older one.
    with pytest.raises(Conflict, match="newer Mooring"):
        maintenance.refuse_unknown(await maintenance.state(own_database))


async def test_tenants_are_charged_with_what_ran_before_the_upgrade(own_database: Database):
    harbour = await Harbour.open(own_database)
    await harbour.node("n1")
    await harbour.run(await harbour.submit("running", replicas=2))
    await harbour.submit("placed")
    await harbour.place()
    await harbour.submit("waiting")
    await schema.downgrade(own_database.engine, "0003")
    await schema.upgrade(own_database.engine)
    assert await harbour.findings() == []


async def test_pools_that_exist_keep_how_work_goes_past_other_work_when_the_default_changes(own_database: Database):
    async def how(name: str) -> HeadOfLine:
        async with own_database.read() as connection:
            found = await pools.by_name(connection, name)
        assert found is not None
        return found.policy.head_of_line

    harbour = await Harbour.open(own_database)
    strict = PoolPolicy("balanced", head_of_line=HeadOfLine.STRICT, deprioritise=3)
    make = partial(pools.create, runtimes=["process"], simulated=False, now=now())
    await own_database.write(lambda c: make(c, "strict", policy=strict))
    await schema.downgrade(own_database.engine, "0007")
    await schema.upgrade(own_database.engine)
    assert (await how(harbour.pool.name), await how("strict")) == (HeadOfLine.SKIP, HeadOfLine.STRICT)
    await own_database.write(lambda c: make(c, "new", policy=PoolPolicy("balanced")))
    assert await how("new") is HeadOfLine.BACKFILL


async def test_the_history_keeps_its_rows_and_their_order_when_it_is_numbered(own_database: Database):
    async def told() -> list[str]:
        async with own_database.engine.connect() as connection:
            return list((await connection.exec_driver_sql("SELECT reason FROM status_history ORDER BY id")).scalars())

    reasons = [f"reason {number}" for number in range(300)]
    line = {"noun": "node", "object_id": new_id(), "old_status": "a", "new_status": "b", "actor": "test", "at": now()}
    async with own_database.engine.begin() as connection:
        await connection.execute(insert(status_history), [line | {"reason": reason} for reason in reasons])
    await schema.downgrade(own_database.engine, "0004")
    assert await told() == reasons
    await schema.upgrade(own_database.engine)
    assert await told() == reasons


async def test_servers_that_start_at_once_upgrade_one_after_the_other(postgres_url: str):
    databases = [Database(postgres_url) for _ in range(3)]
    try:
        await asyncio.gather(*(schema.upgrade(database.engine) for database in databases))
        assert await schema.current(databases[0].engine) == schema.newest()
    finally:
        for database in databases:
            await database.close()


async def test_a_failed_migration_leaves_nothing(postgres_url: str):
    database = Database(postgres_url)
    try:
        async with database.engine.begin() as connection:
            await connection.exec_driver_sql("CREATE TABLE tasks (mine integer)")
        with pytest.raises(Exception, match="already exists"):
            await schema.upgrade(database.engine)
        assert await tables(database) == {"tasks"}
    finally:
        await database.close()
