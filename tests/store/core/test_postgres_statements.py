"""Statements that are executed without SQLAlchemy: its transactions, its errors, and what it does with broken ones."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from mooring.store.core.engine import Connection, Database, is_temporary, is_unique_violation
from mooring.store.core.postgres import execute
from tests.store.databases import on_postgresql

pytestmark = on_postgresql
_ADD = "INSERT INTO things (id) VALUES ($1::bigint)"


@pytest.fixture
async def things(database: Database) -> AsyncIterator[None]:
    async with database.engine.begin() as connection:
        await connection.execute(text("CREATE TABLE things (id bigint PRIMARY KEY)"))
    yield
    async with database.engine.begin() as connection:
        await connection.execute(text("DROP TABLE things"))


async def count(database: Database) -> int:
    async with database.read() as connection:
        [(number,)] = (await execute(connection, "SELECT count(*) FROM things", ())).rows
    assert isinstance(number, int)
    return number


async def backend(connection: Connection) -> int:
    [(pid,)] = (await execute(connection, "SELECT pg_backend_pid()", ())).rows
    return int(pid)


@pytest.mark.usefixtures("things")
async def test_statement_is_part_of_the_transaction_of_its_connection(database: Database):
    async def fail(connection: Connection) -> None:
        assert (await execute(connection, _ADD, (1,))).rowcount == 1
        await connection.execute(text("INSERT INTO things (id) VALUES (2)"))
        assert len((await execute(connection, "SELECT id FROM things", ())).rows) == 2
        raise KeyError

    with pytest.raises(KeyError):
        await database.write(fail)
    assert await count(database) == 0
    await database.write(lambda connection: execute(connection, _ADD, (1,)))
    assert await count(database) == 1


@pytest.mark.usefixtures("things")
async def test_statement_of_a_snapshot_sees_the_state_at_its_first_statement(database: Database):
    async with database.snapshot() as connection:
        await execute(connection, "SELECT count(*) FROM things", ())
        await database.write(lambda other: execute(other, _ADD, (1,)))
        [(seen,)] = (await execute(connection, "SELECT count(*) FROM things", ())).rows
    assert (seen, await count(database)) == (0, 1)


@pytest.mark.usefixtures("things")
async def test_rejected_row_raises_the_error_of_sqlalchemy(database: Database):
    await database.write(lambda connection: execute(connection, _ADD, (1,)))
    with pytest.raises(IntegrityError) as raised:
        await database.write(lambda connection: execute(connection, _ADD, (1,)))
    assert is_unique_violation(raised.value)
    assert await count(database) == 1, "its connection is usable"


async def test_interrupted_statement_closes_its_connection(database: Database):
    began = asyncio.Event()
    pids: list[int] = []

    async def wait() -> None:
        async with database.read() as connection:
            pids.append(await backend(connection))
            began.set()
            await execute(connection, "SELECT pg_sleep(60)", ())

    waiting = asyncio.create_task(wait())
    await began.wait()
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with database.read() as connection:
        assert await backend(connection) not in pids


async def test_broken_connection_is_replaced_and_its_error_is_temporary(database: Database):
    async with database.read() as connection:
        pid = await backend(connection)
        async with database.read() as other:
            await execute(other, "SELECT pg_terminate_backend($1::int)", (pid,))
        with pytest.raises(DBAPIError) as raised:
            await execute(connection, "SELECT 1", ())
    assert is_temporary(raised.value)
    async with database.read() as connection:
        assert await backend(connection) != pid
