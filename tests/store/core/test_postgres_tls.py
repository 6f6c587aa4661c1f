"""Everything that connects to PostgreSQL uses TLS as the URL requires."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from mooring.clock import now
from mooring.coordination import postgres
from mooring.coordination.signals import Signal
from mooring.model.errors import Unavailable
from mooring.server import maintenance
from mooring.store.control import events
from mooring.store.core.engine import Database
from mooring.store.core.ids import new_id
from tests.certificates import certificates
from tests.servers import PostgresServer, private_folder, running_postgres

LONG = 30.0
ENCRYPTED = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND datname = 'mooring'"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with private_folder("mooring-tls-") as made:
        yield made


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[PostgresServer]:
    """A server whose certificate is for 127.0.0.1, signed by the authority in `ca.pem`."""
    server = certificates(folder).server
    files = [f"ssl_cert_file={server.certificate}", f"ssl_key_file={server.key}"]
    with running_postgres(["ssl=on", *files]) as started:
        started.execute("CREATE DATABASE mooring")
        yield started


@pytest.mark.slow
async def test_migrations_and_signals_use_a_verified_connection(secure: PostgresServer, folder: Path):
    url = f"{secure.url('mooring')}?sslmode=verify-full&sslrootcert={folder / 'ca.pem'}"
    await maintenance.upgrade(url)
    database, signal = Database(url), Signal()
    listening = asyncio.create_task(postgres.listen(database.url, signal))
    seen = await signal.wait(LONG)
    async with database.read() as connection:
        assert (await connection.execute(text(ENCRYPTED))).scalar_one() == 2
    await database.write(lambda c: events.append(c, [events.NewEvent("node", new_id(), 1, "x")], now()))
    assert await signal.wait(LONG, seen) > seen
    listening.cancel()
    await database.close()


async def test_a_server_with_an_unverified_certificate_is_refused(secure: PostgresServer, folder: Path, tmp_path: Path):
    another = await asyncio.to_thread(certificates, tmp_path)
    url = f"{secure.url('mooring')}?sslmode=verify-full&sslrootcert="
    with pytest.raises(Unavailable, match="certificate"):
        await maintenance.check(f"{url}{another.authority}")
    with pytest.raises(Unavailable, match="certificate"):
        await maintenance.check(f"{url}{folder / 'ca.pem'}".replace("127.0.0.1", "localhost"))
    listening = postgres.listen(Database(f"{url}{another.authority}").url, heard := Signal())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(listening, 0.5)
    assert heard.count == 0


async def test_a_server_without_tls_is_refused_if_the_url_requires_tls(postgres_server: PostgresServer):
    with pytest.raises(Unavailable, match="SSL"):
        await maintenance.check(f"{postgres_server.url('postgres')}?sslmode=require")
