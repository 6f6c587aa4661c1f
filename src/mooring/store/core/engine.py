"""A database of Mooring on SQLite or PostgreSQL: its pools of connections and its transactions.

Other packages import the connection type and the classification of errors from here.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import json
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from mooring.model.errors import InvalidInput, Unavailable
from mooring.model.events import Topic, Topics, encode_topics
from mooring.store.core import configuration, high_water
from mooring.store.core.errors import (
    DISK_FULL,
    is_constraint_conflict,
    is_disk_full,
    is_rejected_row,
    is_temporary,
    is_unique_violation,
    retry,
)
from mooring.store.core.high_water import HighWaterMark
from mooring.store.core.postgres import CHANNEL, ConnectionCloser, connect, replace_broken, server_settings
from mooring.store.core.sqlite import (
    AUTOCOMMIT,
    Checkpoints,
    commit_with,
    driver_connection,
    has_deferred,
    in_driver_thread,
    prepare,
)

__all__ = [
    "DISK_FULL",
    "Connection",
    "Database",
    "allow_long_statements",
    "connect",
    "is_constraint_conflict",
    "is_disk_full",
    "is_rejected_row",
    "is_temporary",
    "is_unique_violation",
    "opened",
    "retry",
    "writes_ledger_copies",
]

R = TypeVar("R")
Connection = AsyncConnection
"""The connection type of all store functions."""


class Database:
    """A pool of connections to one database.

    `write(work)` runs `work` in one transaction, and runs it again from the start after a temporary failure, so `work`
    must create everything that it accumulates. `read()` returns a connection for queries, `snapshot()` one for queries
    that must see the same state.
    """

    def __init__(
        self, url: str, *, dual_write: bool = True, statement_timeout_seconds: float = 30.0, name: str | None = None
    ) -> None:
        """`dual_write`: also write the readable copies of the ledger.

        `statement_timeout_seconds`: PostgreSQL cancels statements that take longer. `name`: the application name of
        this process in PostgreSQL.
        """
        self.url = make_url(url)
        self.origin = secrets.token_hex(8)
        """Marks the notifications of this database object, which get its commits anyway."""
        # Called after every commit of this process with its topics, or with None if it wrote no events. They only
        # signal, so they must be quick and never fail.
        self.on_commit: list[Callable[[Topics], None]] = []
        self.dialect = self.url.get_backend_name()
        self._checkpoints: Checkpoints | None = None
        self._closer: ConnectionCloser | None = None
        self._mark: HighWaterMark | None = None
        self.problem: str | None = None
        """The error of the last write until one succeeds; set only when the disk is full."""
        if self.dialect == "sqlite":
            self.engine, self._snapshots = (
                create_async_engine(url, pool_size=size, max_overflow=0, json_deserializer=json.decode)
                for size in (1, 4)
            )
            prepare(self.engine, "BEGIN IMMEDIATE")
            prepare(self._snapshots, "BEGIN")
            # Without a transaction, which would take two more calls to the thread of the connection.
            self._unpooled = self._reader = self._snapshots.execution_options(**{AUTOCOMMIT: True})
            self._checkpoints = Checkpoints(self._reader)
            if self.url.database not in (None, "", ":memory:"):
                self._mark = HighWaterMark(Path(str(self.url.database)))
        elif self.dialect == "postgresql":
            if self.url.get_driver_name() != "asyncpg":
                self.url = self.url.set(drivername="postgresql+asyncpg")
            opening = partial(connect, self.url, server_settings(statement_timeout_seconds, name))
            self.engine = create_async_engine(
                self.url,
                # Connections stay open: opening one takes longer than most transactions.
                pool_size=20,
                max_overflow=0,
                pool_use_lifo=True,
                json_deserializer=json.decode,
                async_creator=opening,
            )
            replace_broken(self.engine)
            self._closer = ConnectionCloser()
            # Without a transaction, which would need two more round trips.
            self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ")
            self._unpooled = create_async_engine(self.url, poolclass=NullPool, async_creator=opening)
            for engine in (self.engine, self._unpooled):
                self._closer.use(engine)
        else:
            raise InvalidInput(
                f"database {self.dialect!r} is not supported; use sqlite or postgresql", code="invalid-setting"
            )
        for engine in {self.engine, self._reader, self._snapshots}:
            engine.sync_engine.update_execution_options(dual_write=dual_write, origin=self.origin)
        configuration.watch(self.engine.sync_engine)

    async def close(self) -> None:
        if self._checkpoints is not None:
            await self._checkpoints.end()
        await self.engine.dispose()
        if self._reader is not self.engine:
            await self._reader.dispose()
        if self._closer is not None:
            await self._closer.end()
        if self._mark is not None:
            self._mark.close()

    async def check_open(self) -> None:
        """Raise Unavailable with the reason if the database cannot be opened."""
        try:
            async with self.read():
                pass
        except (DBAPIError, OSError) as error:
            shown = self.url.render_as_string(hide_password=True)
            raise Unavailable(f"cannot open the database {shown}: {getattr(error, 'orig', error)}") from error

    async def write(self, work: Callable[[AsyncConnection], Awaitable[R]], *, notify: bool = True) -> R:
        """Run `work` in one transaction and return its result. `notify`: notify waiters after the commit."""

        async def attempt() -> tuple[R, frozenset[Topic]]:
            number: int | None = None
            async with self.engine.begin() as connection:
                topics = written_topics(connection)
                topics.clear()
                before = driver_connection(connection).total_changes if self._mark is not None else 0
                result = await work(connection)
                if notify and self.dialect == "postgresql" and (changed := topics & configuration.TOPICS):
                    # Delivered to the other processes when, and only if, this transaction commits.
                    payload = f"{self.origin} {encode_topics(changed)}"
                    await connection.execute(select(func.pg_notify(CHANNEL, payload)))
                if self._checkpoints is not None:
                    self._checkpoints.count(connection)
                if self._mark is not None and (
                    has_deferred(connection) or driver_connection(connection).total_changes != before
                ):
                    number = await commit_with(connection, partial(_count_up, self._mark, before))
                # The next transaction on this connection may begin before this task continues.
                written = frozenset(topics)
            if self._mark is not None and number is not None:
                # The commit is done in any case, and a mark that is too low causes no false alarm.
                with suppress(OSError):
                    self._mark.write(number)
            return result, written

        try:
            result, topics = await retry(attempt)
        except (DBAPIError, OSError) as error:
            self.problem = DISK_FULL if is_disk_full(error) else None
            raise
        except asyncio.CancelledError:
            # It may have been committed anyway.
            if notify:
                self.notify()
            raise
        self.problem = None
        if self._checkpoints is not None:
            self._checkpoints.start_if_due()
        if notify:
            self.notify(topics or None)
        return result

    async def lost_transactions(self) -> int:
        """Return how many committed transactions are missing from the SQLite file because its log was damaged."""
        if self._mark is None:
            return 0
        async with self._reader.connect() as connection:
            return self._mark.lost(await in_driver_thread(connection, high_water.counted))

    async def accept_loss(self) -> None:
        """Accept the current state; `lost_transactions` returns 0 afterwards."""
        if self._mark is not None:
            async with self._reader.connect() as connection:
                self._mark.accept(await in_driver_thread(connection, high_water.counted))

    def notify(self, topics: Topics = None) -> None:
        """Notify everything that waits for commits."""
        for committed in self.on_commit:
            committed(topics)

    async def ping(self) -> None:
        """Return if the database answers, even with an error.

        It uses a connection of its own: a pool without free connections says nothing about the network.
        """
        try:
            async with self._unpooled.connect():
                pass
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) is None:
                raise

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Return a connection for queries. Each statement sees the state at its start."""
        async with self._reader.connect() as connection:
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Return a connection on which all statements see the same state."""
        async with self._snapshots.connect() as connection:
            yield connection


def _count_up(mark: HighWaterMark, changes_before: int, opened: sqlite3.Connection) -> int | None:
    """Count a transaction that changed something."""
    return mark.count_up(opened) if opened.total_changes != changes_before else None


def written_topics(connection: AsyncConnection) -> set[Topic]:
    """Return the topics of the events of the current transaction; the writer of an event adds its topic."""
    assert connection.sync_connection is not None
    found: set[Topic] = connection.sync_connection.info.setdefault("topics", set())
    return found


def origin_of(connection: AsyncConnection) -> str:
    """Return the name by which a process recognizes its own notifications."""
    assert connection.sync_connection is not None
    return str(connection.sync_connection.get_execution_options().get("origin", ""))


def writes_ledger_copies(connection: AsyncConnection) -> bool:
    """Return whether the readable copies of the ledger are written."""
    assert connection.sync_connection is not None
    return bool(connection.sync_connection.get_execution_options().get("dual_write", True))


async def allow_long_statements(connection: AsyncConnection) -> None:
    """Allow long statements in this transaction, which reads whole tables, and more memory for its sums."""
    if connection.dialect.name == "postgresql":
        # JIT compilation of these statements takes longer than running them.
        wanted = {"statement_timeout": "0", "jit": "off", "work_mem": "64MB"}
        await connection.execute(select(*(func.set_config(name, value, True) for name, value in wanted.items())))


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    """Open a database and close it afterwards; raise Unavailable if it cannot be opened."""
    database = Database(url)
    try:
        await database.check_open()
        yield database
    finally:
        await database.close()
