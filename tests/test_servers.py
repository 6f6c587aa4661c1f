"""The test servers themselves: real, empty at the start of a test, and gone where they must be."""

import base64
import json
import signal
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
import asyncpg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.servers import PostgresServer, free_port, running_postgres


async def test_postgres_answers_a_query(postgres_url: str):
    connection = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
    try:
        assert await connection.fetchval("SELECT 1") == 1
    finally:
        await connection.close()


@pytest.mark.parametrize("attempt", ["first", "second"])
async def test_every_test_gets_an_empty_database(database_url: str, attempt: str):
    engine = create_async_engine(database_url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("CREATE TABLE berths (name TEXT PRIMARY KEY)"))
            await connection.execute(text("INSERT INTO berths VALUES (:name)"), {"name": attempt})
            rows = await connection.execute(text("SELECT name FROM berths"))
            assert rows.scalars().all() == [attempt]
    finally:
        await engine.dispose()


def test_a_database_is_copied_from_a_template(postgres_server: PostgresServer):
    template = postgres_server.create_database()
    copy = postgres_server.create_database(template=template)
    assert make_url(postgres_server.url(copy)).database == copy
    postgres_server.drop_database(copy)
    postgres_server.drop_database(template)


@pytest.mark.slow
def test_a_killed_postgres_does_not_answer():
    with running_postgres() as server:
        server.execute("SELECT 1")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        with pytest.raises(OSError):
            server.execute("SELECT 1")


def test_a_free_port_stays_reserved_for_its_server():
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    for _ in ("started", "started again"):
        with socket.create_server(("127.0.0.1", port)):
            socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


async def test_etcd_returns_stored_values(etcd_endpoint: str):
    key, value = (base64.b64encode(part).decode() for part in (b"test_servers/berth", b"taken"))
    async with aiohttp.ClientSession(etcd_endpoint, raise_for_status=True) as session:
        async with session.get("/health") as answer:
            assert json.loads(await answer.text())["health"] == "true"
        await session.post("/v3/kv/put", json={"key": key, "value": value})
        async with session.post("/v3/kv/range", json={"key": key}) as answer:
            found = await answer.json(content_type=None)
    assert [pair["value"] for pair in found["kvs"]] == [value]


def test_conformance_data_is_read_by_name(conformance: Callable[[str], Any]):
    assert conformance("quantity.json")


def test_absent_data_skips_the_test_and_names_the_variable_to_set(
    conformance: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MOORING_CONFORMANCE", "nowhere")
    with pytest.raises(pytest.skip.Exception, match="set MOORING_CONFORMANCE"):
        conformance("quantity.json")
