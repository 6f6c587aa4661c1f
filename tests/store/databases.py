"""Databases with all tables, copied from one that was migrated once, and a seeded one (`harbour`) over them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mooring.store import engine, schema
from mooring.store.engine import Database
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
    """A database with all tables: the test runs once per kind."""
    if request.param == "sqlite":
        file = tmp_path / "mooring.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), file)
        yield f"sqlite+aiosqlite:///{file}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create_database(template=request.getfixturevalue("postgres_template"))
    yield server.url(name)
    server.drop_database(name)


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


def migrate(url: str) -> None:
    async def run() -> None:
        database = Database(url)
        await schema.upgrade(database.engine)
        await database.close()

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(run())
