"""Transactions of SQLite begin with their first statement, in the same call to the thread of the connection."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mooring.clock import now
from mooring.store.core import sqlite
from mooring.store.core.engine import Connection, Database
from mooring.store.core.sqlite import defer, driver_connection
from mooring.store.tenancy import domains
from tests.store.databases import on_sqlite

pytestmark = on_sqlite


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """The calls to the threads of connections."""
    made: list[Callable[..., Any]] = []
    execute = sqlite._Driver._execute

    async def noted(self: Any, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        made.append(fn)
        return await execute(self, fn, *args, **options)

    monkeypatch.setattr(sqlite._Driver, "_execute", noted)
    return made


async def test_write_of_one_statement_takes_two_calls(database: Database, calls: list[Callable[..., Any]]):
    await database.write(lambda c: domains.ensure(c, "warm", now()))
    calls.clear()

    async def work(connection: Connection) -> None:
        await connection.execute(text("UPDATE domains SET name = name || '-x'"))
        assert driver_connection(connection).in_transaction

    await database.write(work)
    assert len(calls) == 2
    async with database.read() as connection:
        found = (await connection.execute(text("SELECT name FROM domains"))).scalars().all()
        assert all(name.endswith("-x") for name in found)


async def test_transaction_without_a_statement_takes_no_call(database: Database, calls: list[Callable[..., Any]]):
    async def nothing(_connection: Connection) -> int:
        return 7

    await database.write(lambda c: domains.ensure(c, "warm", now()))
    calls.clear()
    assert await database.write(nothing) == 7
    assert calls == []


async def test_failed_transaction_leaves_nothing_behind(database: Database):
    async def work(connection: Connection) -> None:
        await connection.execute(text("UPDATE domains SET name = name || '-x'"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await database.write(work)
    async with database.read() as connection:
        found = (await connection.execute(text("SELECT name FROM domains"))).scalars().all()
        assert not any(name.endswith("-x") for name in found)
    await database.write(lambda c: domains.ensure(c, "next", now()))


async def test_write_cancelled_while_it_begins_does_not_block_the_next(database: Database):
    """The thread begins the transaction although its caller was cancelled."""
    holder = sqlite3.connect(str(database.url.database), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    begun = asyncio.Event()

    async def work(connection: Connection) -> None:
        opened: Any = driver_connection(connection)
        begun.set()
        await opened._execute(opened._conn.execute, "SELECT 1")

    writing = asyncio.create_task(database.write(work))
    await begun.wait()
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.sleep(0)
    holder.execute("ROLLBACK")
    holder.close()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await database.write(lambda c: domains.ensure(c, "next", now()))


def rename(name: str) -> Callable[[sqlite3.Connection], None]:
    def work(opened: sqlite3.Connection) -> None:
        opened.execute("UPDATE domains SET name = ?", (name,))

    return work


def insert_nowhere(opened: sqlite3.Connection) -> None:
    opened.execute("INSERT INTO nowhere VALUES (1)")


async def names(database: Database) -> set[str]:
    async with database.read() as connection:
        return set((await connection.execute(text("SELECT name FROM domains"))).scalars())


async def test_deferred_work_is_done_with_the_next_statement_before_it(
    database: Database, calls: list[Callable[..., Any]]
):
    await database.write(lambda c: domains.ensure(c, "warm", now()))

    async def work(connection: Connection) -> list[str]:
        defer(connection, rename("first"))
        defer(connection, rename("second"))
        return list((await connection.execute(text("SELECT DISTINCT name FROM domains"))).scalars())

    # The names are unique.
    await database.write(lambda c: c.execute(text("DELETE FROM domains WHERE name <> 'warm'")))
    calls.clear()
    assert await database.write(work) == ["second"]
    assert len(calls) == 2
    assert await names(database) == {"second"}


async def test_deferred_work_without_a_next_statement_is_done_with_the_commit(
    database: Database, calls: list[Callable[..., Any]]
):
    await database.write(lambda c: domains.ensure(c, "warm", now()))
    await database.write(lambda c: c.execute(text("DELETE FROM domains WHERE name <> 'warm'")))
    calls.clear()

    async def work(connection: Connection) -> None:
        defer(connection, rename("last"))

    await database.write(work)
    assert len(calls) == 1
    assert await names(database) == {"last"}


async def test_error_of_deferred_work_fails_the_transaction(database: Database):
    await database.write(lambda c: domains.ensure(c, "warm", now()))
    before = await names(database)

    async def work(connection: Connection) -> None:
        await connection.execute(text("UPDATE domains SET name = name || '-x'"))
        defer(connection, insert_nowhere)

    with pytest.raises(DBAPIError, match="nowhere"):
        await database.write(work)
    assert await names(database) == before
    await database.write(lambda c: domains.ensure(c, "next", now()))
    assert "next" in await names(database)


async def test_deferred_work_of_a_failed_transaction_is_never_done(database: Database):
    await database.write(lambda c: domains.ensure(c, "warm", now()))

    async def work(connection: Connection) -> None:
        defer(connection, rename("never"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await database.write(work)
    await database.write(lambda c: domains.ensure(c, "next", now()))
    assert "never" not in await names(database)
    assert "next" in await names(database)
