"""What the API's tests ask for: a database with its tables, and a whole API over it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from mooring.api.app import create_app
from mooring.store import schema
from mooring.store.engine import Database
from tests.api.world import World, prepare
from tests.servers import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with all tables, copied from one that was migrated once: the test runs once per kind."""
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


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    opened = Database(migrated_url)
    yield opened
    await opened.close()


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    services, logs, changes, state = await prepare(database)
    app = create_app(services)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://mooring.test") as client:
        yield World(services, app, client, logs, changes, state)
