"""The database: engines with the right transactions, and the one retry helper."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import aiosqlite
import asyncpg
from msgspec import json
from sqlalchemy import Connection as SyncConnection
from sqlalchemy import event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, DisconnectionError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from mooring.model.errors import InvalidInput, Unavailable

R = TypeVar("R")
Connection = AsyncConnection
"""What the repositories' functions work on; the other rooms know it by this name only."""

# 40001 serialization failure, 40P01 deadlock, 55P03 lock not available, 57P01/02/03 the server stops or starts.
_RETRIED_STATES = frozenset({"40001", "40P01", "55P03", "57P01", "57P02", "57P03"})
_ATTEMPTS = 20
_FIRST_WAIT_SECONDS = 0.02
_LAST_DOUBLED_SECONDS = 2.56
_LONGEST_WAIT_SECONDS = 5.0
_CHANGES_PER_COPY = 100_000
"""Rows that SQLite writes before its log is copied into the file: the same pages of several large batches once."""
_FROZEN_SECONDS = 10
"""Nobody thinks for so long in the middle of a transaction."""
_LONGEST_NAME = 63
_TRUSTED_SECONDS = 1.0
"""A connection that was used so short a time ago is not asked whether it still answers."""
# What a batch is about lies in memory or on flash: a thousand rows are looked up, not searched for.
_COSTS = {"random_page_cost": "1.1"}
_PRAGMAS = (
    # Of a new file: a batch touches most pages of some tables, and half as many are half the work at its commit.
    "page_size=8192",
    "journal_mode=wal",
    "synchronous=full",
    "foreign_keys=on",
    "busy_timeout=5000",
    # Megabytes that a batch touches stay in memory, and are copied into the file once for many batches.
    "cache_size=-65536",
    "wal_autocheckpoint=20000",
    "temp_store=memory",
)


class Database:
    """A pool of connections to one database.

    `write(work)` runs `work` in one transaction and again from the start when the database says "try again": whatever
    `work` accumulates must be made inside it. `read()` gives a connection for questions, `snapshot()` one for questions
    whose answers have to fit together.
    """

    def __init__(
        self, url: str, *, dual_write: bool = True, statement_timeout_seconds: float = 30.0, name: str | None = None
    ) -> None:
        """`dual_write`: keep readable copies of what the ledger says. A statement that takes longer is ended.

        `name`: what PostgreSQL calls the sessions of this process.
        """
        self.url = make_url(url)
        # Called after every commit of this process; they only wake, so they must be quick and never fail.
        self.on_commit: list[Callable[[], None]] = []
        self.dialect = self.url.get_backend_name()
        self._copying: _Copying | None = None
        if self.dialect == "sqlite":
            self.engine, self._reader = (
                create_async_engine(
                    url,
                    pool_size=size,
                    max_overflow=0,
                    json_deserializer=json.decode,
                    connect_args={"async_creator_fn": _open_file},
                )
                for size in (1, 4)
            )
            _sqlite_transactions(self.engine, "BEGIN IMMEDIATE")
            _sqlite_transactions(self._reader, "BEGIN")
            self._alone = self._snapshots = self._reader
            self._copying = _Copying(self._reader)
        elif self.dialect == "postgresql":
            if self.url.get_driver_name() != "asyncpg":
                self.url = self.url.set(drivername="postgresql+asyncpg")
            opening = partial(connect, self.url, _settings(statement_timeout_seconds, name))
            self.engine = create_async_engine(
                self.url,
                # Each is kept: to open one takes longer than what it is opened for.
                pool_size=20,
                max_overflow=0,
                pool_use_lifo=True,
                json_deserializer=json.decode,
                async_creator=opening,
            )
            _replace_broken(self.engine)
            # A transaction would not make a snapshot of several statements, and costs two more messages to the server.
            self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ")
            self._alone = create_async_engine(self.url, poolclass=NullPool, async_creator=opening)
        else:
            raise InvalidInput(
                f"database {self.dialect!r} is not supported; use sqlite or postgresql", code="invalid-setting"
            )
        for engine in {self.engine, self._reader, self._snapshots}:
            engine.sync_engine.update_execution_options(dual_write=dual_write)

    async def close(self) -> None:
        if self._copying is not None:
            await self._copying.end()
        await self.engine.dispose()
        if self._reader is not self.engine:
            await self._reader.dispose()

    async def check_open(self) -> None:
        """Unavailable, with a sentence, where it cannot be opened."""
        try:
            async with self.read():
                pass
        except (DBAPIError, OSError) as error:
            shown = self.url.render_as_string(hide_password=True)
            raise Unavailable(f"cannot open the database {shown}: {getattr(error, 'orig', error)}") from error

    async def write(self, work: Callable[[AsyncConnection], Awaitable[R]], *, wakes: bool = True) -> R:
        """`wakes`: somebody may wait for what is written."""

        async def attempt() -> R:
            async with self.engine.begin() as connection:
                result = await work(connection)
                if self._copying is not None:
                    await self._copying.count(connection)
            return result

        result = await retry(attempt)
        if self._copying is not None:
            self._copying.start_if_due()
        if wakes:
            self.wake()
        return result

    def wake(self) -> None:
        """Tell those who wait for what others commit."""
        for committed in self.on_commit:
            committed()

    async def reach(self) -> None:
        """Return if the database answers, be it with a refusal.

        On a connection of its own: all others may be taken, which says nothing about the way to the database.
        """
        try:
            async with self._alone.connect():
                pass
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) is None:
                raise

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """On PostgreSQL each statement sees what is committed when it begins."""
        async with self._reader.connect() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """All statements see the same moment."""
        async with self._snapshots.connect() as connection:
            yield connection


def keeps_copies(connection: AsyncConnection) -> bool:
    """Whether the copies that only people read are written beside the ledger."""
    assert connection.sync_connection is not None
    return bool(connection.sync_connection.get_execution_options().get("dual_write", True))


async def without_haste(connection: AsyncConnection) -> None:
    """This transaction goes through whole tables: no statement of it is ended for that, and sums stay in memory."""
    if connection.dialect.name == "postgresql":
        # To compile such a statement takes longer than to run it.
        wanted = {"statement_timeout": "0", "jit": "off", "work_mem": "64MB"}
        await connection.execute(select(*(func.set_config(name, value, True) for name, value in wanted.items())))


class _Copying:
    """SQLite's log is copied into the file beside the writer, which would do so within some commit otherwise."""

    def __init__(self, reader: AsyncEngine) -> None:
        self._reader = reader
        self._changes = self._copied = 0
        self._running: asyncio.Task[None] | None = None

    async def count(self, writer: AsyncConnection) -> None:
        """How many rows the writer has changed since it was opened."""
        self._changes = (await _driver(writer)).total_changes

    def start_if_due(self) -> None:
        idle = self._running is None or self._running.done()
        if idle and not 0 <= self._changes - self._copied < _CHANGES_PER_COPY:
            self._copied = self._changes
            self._running = asyncio.create_task(self._copy())

    async def end(self) -> None:
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _copy(self) -> None:
        async with self._reader.connect() as connection:
            await (await _driver(connection)).execute_fetchall("pragma wal_checkpoint(passive)")


async def _driver(connection: AsyncConnection) -> aiosqlite.Connection:
    found = (await connection.get_raw_connection()).driver_connection
    assert isinstance(found, aiosqlite.Connection)
    return found


async def connect(url: URL, settings: Mapping[str, str] | None = None) -> Any:
    """A connection of the driver itself, which reads the URL as PostgreSQL's own programs do: `?sslmode=…` as well."""
    address = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return await asyncpg.connect(address, server_settings=dict(settings or {}))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """A database for one purpose, closed afterwards; Unavailable if it cannot be opened."""
    database = Database(url)
    try:
        await database.check_open()
        yield database
    finally:
        await database.close()


async def retry(attempt: Callable[[], Awaitable[R]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> R:
    """Call until it succeeds, again only after failures that the database calls temporary."""
    wait = _FIRST_WAIT_SECONDS
    for left in reversed(range(_ATTEMPTS)):
        try:
            return await attempt()
        except (DBAPIError, ConnectionError) as error:
            if left == 0 or not is_temporary(error):
                raise
        # Up to a fifth less, so that those who were in each other's way do not meet again.
        await sleep(wait * random.uniform(0.8, 1.0))
        wait = wait * 2 if wait < _LAST_DOUBLED_SECONDS else _LONGEST_WAIT_SECONDS
    raise AssertionError("unreachable")


def _settings(statement_seconds: float, name: str | None) -> dict[str, str]:
    """What PostgreSQL ends by itself: statements, before them the wait for a lock, and transactions of the frozen."""
    found = {"idle_in_transaction_session_timeout": str(_FROZEN_SECONDS * 1000), **_COSTS}
    if name is not None:
        found["application_name"] = name[:_LONGEST_NAME]
    if statement_seconds:
        whole = round(statement_seconds * 1000)
        found |= {"statement_timeout": str(whole), "lock_timeout": str(max(whole // 2, 1))}
    return found


def is_temporary(error: Exception) -> bool:
    """True where the same transaction, run again, may succeed."""
    if isinstance(error, ConnectionError | NoConnectionFree):
        return True
    original = getattr(error, "orig", None)
    if getattr(original, "sqlstate", None) in _RETRIED_STATES:
        return True
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return isinstance(error, OperationalError | InterfaceError) and "locked" in str(original)


def is_refused(error: Exception) -> bool:
    """True where the database will not have some row, however often it is tried: the others may be innocent."""
    return isinstance(error, IntegrityError | DataError)


def is_taken(error: Exception) -> bool:
    """True where a unique key said no: somebody else wrote the same name first."""
    return isinstance(error, IntegrityError) and "unique" in str(error.orig).lower()


def is_overtaken(error: Exception) -> bool:
    """True where a name was taken, or something referred to was removed, between a look and the write."""
    refers = isinstance(error, IntegrityError) and "foreign key" in str(error.orig).lower()
    return refers or is_taken(error)


def _replace_broken(engine: AsyncEngine) -> None:
    """What broke while nobody used it is replaced. Whether it answers is asked only after it has rested for longer."""
    dialect = engine.sync_engine.dialect

    @event.listens_for(engine.sync_engine, "checkin")
    def rest(_connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["rests_since"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def check(connection: Any, record: ConnectionPoolEntry, _fairy: Any) -> None:
        if connection.driver_connection.is_closed():
            raise DisconnectionError
        if time.monotonic() - record.info.get("rests_since", math.inf) > _TRUSTED_SECONDS:
            try:
                dialect.do_ping(connection)
            except dialect.loaded_dbapi.Error as error:
                raise DisconnectionError from error


async def _open_file(file: str, **options: Any) -> aiosqlite.Connection:
    """As SQLAlchemy does; but the thread of a file that cannot be opened ends before the loop that it reports to."""
    connection = aiosqlite.connect(file, **options)
    connection._thread.daemon = True
    try:
        return await connection
    except sqlite3.Error:
        connection._thread.join()
        raise


def _sqlite_transactions(engine: AsyncEngine, begin: str) -> None:
    # By default the driver opens no transaction before a SELECT, and read-modify-write loses updates without an error.
    @event.listens_for(engine.sync_engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in _PRAGMAS:
            cursor.execute(f"pragma {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def start(connection: SyncConnection) -> None:
        # Without a cursor, which would have to be opened and closed in the connection's thread.
        opened: Any = connection.connection.dbapi_connection
        try:
            opened.run_async(lambda driver: driver.execute(begin))
        except sqlite3.Error as error:
            raise DBAPIError.instance(begin, None, error, sqlite3.Error) from error
