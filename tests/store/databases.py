"""Fixtures: databases copied from a template that is migrated once, and a seeded one (`harness`)."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mooring.store.core import errors, schema
from mooring.store.core.engine import Database
from mooring.store.tables import admin_actions, metadata
from tests.servers import PostgresServer
from tests.store.harness import Harness

# For rules that involve no database, or only one kind of it.
on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
slow_on_postgresql = pytest.mark.parametrize(
    "migrated_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
async def harness(database: Database) -> Harness:
    """A migrated database with the default tenants and pools."""
    return await Harness.open(database)


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors after which a transaction was, or would have been, retried."""
    found: list[Exception] = []
    original = errors.is_temporary

    def is_temporary(error: Exception) -> bool:
        found.append(error)
        return original(error)

    monkeypatch.setattr(errors, "is_temporary", is_temporary)
    return found


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    opened = Database(migrated_url)
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a migrated database whose schema the test does not change; the test runs once per kind."""
    if request.param == "sqlite":
        file = tmp_path / "mooring.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), file)
        yield f"sqlite+aiosqlite:///{file}"
        return
    url: str = request.getfixturevalue("shared_postgres_url")
    yield url
    empty(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "mooring.db"
    migrate(f"sqlite+aiosqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    name = postgres_server.create_database()
    migrate(postgres_server.url(name))
    return name


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server: PostgresServer, postgres_template: str) -> str:
    """The database of all tests that do not change its schema: emptying it is much faster than creating one."""
    return postgres_server.url(postgres_server.create_database(template=postgres_template))


def migrate(url: str) -> None:
    async def work() -> None:
        database = Database(url)
        try:
            await schema.upgrade(database.engine)
        finally:
            await database.close()

    _run(work())


def empty(url: str) -> None:
    """Delete all rows, in one message to the server, since this runs after every test."""
    # Transactions that a failed test left open would keep their locks.
    statements = [
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ]
    # Its rows cannot be deleted, not even by tests.
    statements.append("TRUNCATE admin_actions")
    others = (table for table in reversed(metadata.sorted_tables) if table is not admin_actions)
    statements += [f"DELETE FROM {table.name}" for table in others]

    async def work() -> None:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""), ssl=False)
        try:
            await connection.execute("; ".join(statements))
        finally:
            await connection.close()

    _run(work())


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run in a separate event loop, not in the one that pytest-asyncio keeps for the test."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)
