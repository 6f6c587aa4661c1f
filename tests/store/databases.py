"""Databases with all tables, copied from one that was migrated once, and a seeded one (`harbour`) over them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from mooring.store import engine, schema
from mooring.store.engine import Database
from mooring.store.tables import admin_actions, metadata
from tests.servers import PostgresServer
from tests.store.harbour import Harbour

# For rules that no database, or only one of them, has a part in.
on_sqlite = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
on_postgresql = pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)


@pytest.fixture
async def harbour(database: Database) -> Harbour:
    """A migrated database with the default tenants and pools."""
    return await Harbour.open(database)


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors after which a transaction was, or would have been, tried again."""
    errors: list[Exception] = []

    original = engine.is_temporary

    def is_temporary(error: Exception) -> bool:
        errors.append(error)
        return original(error)

    monkeypatch.setattr(engine, "is_temporary", is_temporary)
    return errors


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    opened = Database(migrated_url)
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with all tables, which the test leaves as they are: it runs once per kind."""
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
    """The database of all tests that leave its tables as they are: to empty it is much quicker than to make one."""
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
    """All in one message to the server, since it is done after every test."""
    # What a failed test left open would keep its locks.
    statements = [
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ]
    # Its rows cannot be deleted, which holds for tests too.
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
    """In a loop of its own, which leaves the one that pytest-asyncio keeps for the test alone."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(work)
