"""Connections of the SQLite driver: opening them, explicit transactions, and checkpoints of the log."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeVar

import aiosqlite
import structlog
from sqlalchemy import Connection as SyncConnection
from sqlalchemy import Dialect, event
from sqlalchemy.dialects.sqlite.aiosqlite import AsyncAdapt_aiosqlite_connection, AsyncAdapt_aiosqlite_cursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_

_log = structlog.get_logger(__name__)
R = TypeVar("R")
_CHANGES_PER_CHECKPOINT = 100_000
"""Changed rows after which the SQLite log is checkpointed: pages that several batches change are copied once."""
_PRAGMAS = (
    # For new files: a batch changes most pages of some tables; larger pages make its commit faster.
    "page_size=8192",
    "journal_mode=wal",
    "synchronous=full",
    "foreign_keys=on",
    "busy_timeout=5000",
    # The pages of a batch stay in memory, and one checkpoint copies the changes of many batches.
    "cache_size=-65536",
    "wal_autocheckpoint=20000",
    "temp_store=memory",
)


class _Cursor(AsyncAdapt_aiosqlite_cursor):
    """A cursor that executes a statement and fetches its rows in one call to the thread of its connection.

    SQLAlchemy's own opens, executes, fetches and closes in four, and each waits for the other threads of the process.
    """

    __slots__ = ("_outcome",)
    description = property(lambda self: self._outcome.description)
    rowcount = property(lambda self: self._outcome.rowcount)
    lastrowid = property(lambda self: self._outcome.lastrowid)

    def __init__(self, adapted: Any) -> None:
        self._adapt_connection = adapted
        self._connection = adapted._connection
        self._outcome = _Outcome(None, -1, None, [])
        self._rows = deque()

    async def _execute_async(self, operation: Any, parameters: Any) -> None:
        await self._run(_execute, operation, () if parameters is None else parameters)

    async def _executemany_async(self, operation: Any, seq_of_parameters: Any) -> None:
        await self._run(_execute_many, operation, seq_of_parameters)

    async def _run(self, work: Callable[..., _Outcome], *arguments: Any) -> None:
        driver: Any = self._connection
        self._outcome = await driver._execute(work, driver._conn, *arguments)
        self._rows = deque(self._outcome.rows)

    async def _async_soft_close(self) -> None:
        """Do nothing: the driver's cursor is closed already."""

    def close(self) -> None:
        self._rows.clear()


class _Outcome(NamedTuple):
    description: Any
    rowcount: int
    lastrowid: int | None
    rows: Sequence[Any]


def _execute(connection: sqlite3.Connection, operation: str, parameters: Any) -> _Outcome:
    with closing(connection.execute(operation, parameters)) as cursor:
        rows = cursor.fetchall() if cursor.description else ()
        return _Outcome(cursor.description, cursor.rowcount, cursor.lastrowid, rows)


def _execute_many(connection: sqlite3.Connection, operation: str, parameters: Any) -> _Outcome:
    with closing(connection.executemany(operation, parameters)) as cursor:
        return _Outcome(None, cursor.rowcount, cursor.lastrowid, ())


Deferred = Callable[[sqlite3.Connection], None]


class _Driver(aiosqlite.Connection):
    """A connection that begins a transaction together with its first statement, in one call to its thread."""

    begin: str | None = None
    """The statement that begins the transaction, until the first one is executed."""
    deferred: tuple[Deferred, ...] = ()
    """Work of the transaction that is done together with its next statement or its commit."""
    abandoned = False
    """Nobody waited for the end of a call, so its thread may still begin a transaction."""

    def defer(self, work: Deferred) -> None:
        self.deferred += (work,)

    async def _execute(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        before = (self.begin, self.deferred)
        self.begin, self.deferred = None, ()
        work = fn if before == (None, ()) else partial(_after, self._conn, *before, fn)
        try:
            return await super()._execute(work, *args, **options)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            self.abandoned = True
            raise


def _after(
    connection: sqlite3.Connection,
    begin: str | None,
    deferred: Sequence[Deferred],
    work: Callable[..., R],
    *args: Any,
    **options: Any,
) -> R:
    """Begin the transaction and do what was deferred, then `work`."""
    if begin is not None:
        try:
            connection.execute(begin)
        except sqlite3.Error as error:
            raise DBAPIError.instance(begin, None, error, sqlite3.Error) from error
    for each in deferred:
        do_deferred(connection, each)
    return work(*args, **options)


def do_deferred(connection: sqlite3.Connection, work: Deferred) -> None:
    """Do deferred work in the thread of its connection; its errors are those of SQLAlchemy."""
    try:
        work(connection)
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error) from error


class _Connection(AsyncAdapt_aiosqlite_connection):
    __slots__ = ()
    _cursor_cls: Any = _Cursor

    def commit(self) -> None:
        driver: Any = self._connection
        # A transaction without a statement was never begun, and `commit_with` has ended it already.
        if driver.deferred or self._end_unbegun():
            super().commit()

    def rollback(self) -> None:
        driver: Any = self._connection
        driver.deferred = ()
        # SQLAlchemy ends every use of a connection with it, also where no transaction was begun.
        if self._end_unbegun():
            super().rollback()

    def _end_unbegun(self) -> bool:
        """Return whether a transaction has begun, or may have."""
        driver: Any = self._connection
        driver.begin = None
        abandoned, driver.abandoned = driver.abandoned, False
        return abandoned or bool(driver.in_transaction)


async def _open_file(file: str, **options: Any) -> aiosqlite.Connection:
    """Open a connection as SQLAlchemy does; if that fails, end its thread before the event loop that it reports to."""
    connection = _Driver(partial(sqlite3.connect, file, **options), iter_chunk_size=64)
    connection._thread.daemon = True
    try:
        return await connection
    except sqlite3.Error:
        connection._thread.join()
        raise


AUTOCOMMIT = "without_transaction"
"""The execution option of connections that begin no transaction."""


def prepare(engine: AsyncEngine, begin: str) -> None:
    """Open the connections of an engine as Mooring needs them; `begin`: the statement that begins a transaction."""

    @event.listens_for(engine.sync_engine, "do_connect")
    def open_connection(dialect: Dialect, _record: Any, arguments: Any, options: Any) -> _Connection:
        opened: Any = await_(_open_file(*arguments, **options))
        return _Connection(dialect.dbapi, opened)

    # By default the driver starts no transaction before a SELECT, and read-modify-write silently loses updates.
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"pragma {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: SyncConnection) -> None:
        if connection.get_execution_options().get(AUTOCOMMIT):
            return
        opened: Any = connection.connection.driver_connection
        opened.begin = begin


class Checkpoints:
    """Checkpoints the SQLite log in the background; otherwise the writer does so within a commit."""

    def __init__(self, reader: AsyncEngine) -> None:
        self._reader = reader
        self._changes = self._checkpointed = 0
        self._running: asyncio.Task[None] | None = None

    def count(self, writer: AsyncConnection) -> None:
        """Store how many rows the writer has changed since it was opened."""
        self._changes = driver_connection(writer).total_changes

    def start_if_due(self) -> None:
        idle = self._running is None or self._running.done()
        if idle and not 0 <= self._changes - self._checkpointed < _CHANGES_PER_CHECKPOINT:
            self._checkpointed = self._changes
            self._running = asyncio.create_task(self._checkpoint())

    async def end(self) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _checkpoint(self) -> None:
        try:
            async with self._reader.connect() as connection:
                await driver_connection(connection).execute_fetchall("pragma wal_checkpoint(passive)")
        except (DBAPIError, sqlite3.Error) as error:
            # The writer then does it within a commit.
            _log.warning("The SQLite log could not be checkpointed", error=str(error))


async def in_driver_thread(connection: AsyncConnection, work: Callable[[sqlite3.Connection], R]) -> R:
    """Run `work` in the thread of a SQLite connection, in one call."""
    opened: Any = driver_connection(connection)
    found: R = await opened._execute(work, opened._conn)
    return found


def defer(connection: AsyncConnection, work: Deferred) -> None:
    """Do this in the transaction of a SQLite connection, before and together with its next statement or its commit.

    Each call to the thread of the connection would wait for its turn in the event loop, while no other transaction can
    be written.
    """
    opened: Any = driver_connection(connection)
    opened.defer(work)


def has_deferred(connection: AsyncConnection) -> bool:
    opened: Any = driver_connection(connection)
    return bool(opened.deferred)


async def fetch_each(
    connection: AsyncConnection, queries: Sequence[tuple[str, Sequence[Any]]]
) -> list[Sequence[Sequence[Any]]]:
    """Return the rows of each query, with its parameters, after one call to the thread of a SQLite connection."""

    def fetch(opened: sqlite3.Connection) -> list[Sequence[Sequence[Any]]]:
        return [opened.execute(sql, parameters).fetchall() for sql, parameters in queries]

    try:
        return await in_driver_thread(connection, fetch)
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error) from error


async def commit_with(connection: AsyncConnection, last: Callable[[sqlite3.Connection], R]) -> R:
    """Run `last` in the thread of a SQLite connection and commit its transaction, in one call."""

    def work(opened: sqlite3.Connection) -> R:
        try:
            found = last(opened)
            opened.commit()
        except sqlite3.Error as error:
            raise DBAPIError.instance("COMMIT", None, error, sqlite3.Error) from error
        return found

    return await in_driver_thread(connection, work)


def driver_connection(connection: AsyncConnection) -> aiosqlite.Connection:
    """Return the driver's connection, which runs a query in one call to its thread, without a cursor."""
    assert connection.sync_connection is not None
    found = connection.sync_connection.connection.driver_connection
    assert isinstance(found, aiosqlite.Connection)
    return found
