"""Migrations create the tables of this version and drop them again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from mooring.model.errors import Conflict
from mooring.server import maintenance
from mooring.store.core import schema
from mooring.store.core.engine import Database
from mooring.store.tables import metadata
from tests.store.harness import Harness


async def tables(database: Database) -> set[str]:
    async with database.engine.connect() as connection:
        return set(await connection.run_sync(lambda sync: inspect(sync).get_table_names()))


async def test_an_empty_database_is_upgraded_and_downgraded_repeatedly(database_url: str):
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
    """A migrated database whose tables the test may change."""
    database = Database(database_url)
    await schema.upgrade(database.engine)
    yield database
    await database.close()


async def test_the_migrations_and_the_table_definitions_create_the_same_schema(database_url: str):
    database = Database(database_url)
    try:
        await schema.upgrade(database.engine)
        migrated = await description(database)
        await schema.downgrade(database.engine, "base")
        async with database.engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        defined = await description(database)
        # A function of PostgreSQL alone, which the definitions cannot state for both databases.
        if database.dialect == "postgresql":
            default = migrated["events"]["columns"]["transaction_id"].pop("default")
            assert "pg_current_xact_id" in default
            assert defined["events"]["columns"]["transaction_id"].pop("default") is None
        assert migrated.keys() == defined.keys() == set(metadata.tables)
        for table in migrated:
            assert migrated[table] == defined[table], table
    finally:
        await database.close()


async def description(database: Database) -> dict[str, Any]:
    """Columns with types and server defaults, keys, constraints and indexes of every table, without their order."""

    def by_name(items: Any) -> dict[str, Any]:
        return {item["name"]: _comparable(item) for item in items}

    def describe(connection: Connection) -> dict[str, Any]:
        inspector = inspect(connection)
        return {
            table: {
                "columns": by_name(inspector.get_columns(table)),
                "primary_key": inspector.get_pk_constraint(table),
                "foreign_keys": by_name(inspector.get_foreign_keys(table)),
                "unique": by_name(inspector.get_unique_constraints(table)),
                "check": by_name(inspector.get_check_constraints(table)),
                "indexes": by_name(inspector.get_indexes(table)),
                "counts_up": _counts_up(connection, table),
            }
            for table in inspector.get_table_names()
            if table != "alembic_version"
        }

    async with database.engine.connect() as connection:
        return await connection.run_sync(describe)


def _comparable(value: Any) -> Any:
    """Types and the conditions of partial indexes as text, since they compare by identity."""
    if isinstance(value, dict):
        return {key: _comparable(each) for key, each in value.items()}
    return value if value is None or isinstance(value, bool | int | str | list) else str(value)


def _counts_up(connection: Connection, table: str) -> bool:
    """Return whether SQLite never reuses the numbers of this table; no inspector shows it."""
    if connection.dialect.name != "sqlite":
        return False
    made = connection.scalar(text("SELECT sql FROM sqlite_master WHERE name = :table"), {"table": table})
    return "AUTOINCREMENT" in str(made)


async def test_upgrading_again_changes_nothing(database: Database):
    await schema.upgrade(database.engine)
    await schema.check(database.engine)


async def test_a_column_that_the_definitions_lack_fails_the_check(own_database: Database):
    async with own_database.engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE holds ADD COLUMN surprise INTEGER")
    with pytest.raises(Exception, match="surprise"):
        await schema.check(own_database.engine)


async def test_a_running_server_tolerates_columns_and_tables_of_a_newer_version(own_database: Database):
    harness = await Harness.open(own_database)
    await harness.node("n1")
    await harness.run(await harness.submit("before"))
    async with own_database.engine.begin() as connection:
        for table in ("nodes", "workloads", "tasks", "resource_allocations", "events", "status_history", "leadership"):
            await connection.execute(text(f"ALTER TABLE {table} ADD COLUMN of_the_next_version INTEGER DEFAULT 0"))
        await connection.execute(text("CREATE TABLE things_of_the_next_version (id INTEGER PRIMARY KEY)"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await harness.run(await harness.submit("after"))
    assert await harness.findings() == []
    # A server of this version does not start on them.
    with pytest.raises(Conflict, match="newer Mooring"):
        maintenance.refuse_unknown(await maintenance.state(own_database))


async def test_servers_that_start_at_the_same_time_upgrade_one_after_another(postgres_url: str):
    databases = [Database(postgres_url) for _ in range(3)]
    try:
        await asyncio.gather(*(schema.upgrade(database.engine) for database in databases))
        assert await schema.current(databases[0].engine) == schema.newest()
    finally:
        for database in databases:
            await database.close()


async def test_a_failed_migration_leaves_nothing_behind(postgres_url: str):
    database = Database(postgres_url)
    try:
        async with database.engine.begin() as connection:
            await connection.exec_driver_sql("CREATE TABLE tasks (mine integer)")
        with pytest.raises(Exception, match="already exists"):
            await schema.upgrade(database.engine)
        assert await tables(database) == {"tasks"}
    finally:
        await database.close()
