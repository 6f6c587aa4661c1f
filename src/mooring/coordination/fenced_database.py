"""The database as controllers see it: reads are unrestricted, every write is fenced by the leader's term."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from mooring.coordination.leadership import Leadership
from mooring.store.control import leadership as terms
from mooring.store.control.fencing import fenced_write
from mooring.store.core.engine import Connection, Database

R = TypeVar("R")


class FencedDatabase:
    """A database with no unfenced write.

    Controllers are given this instead of a `Database`, so none of them can forget to check the term.
    """

    def __init__(self, database: Database, leadership: Leadership) -> None:
        self._database = database
        self._leadership = leadership

    @property
    def holder(self) -> str:
        """The name of the server that leads or stands by in this process."""
        return self._leadership.holder

    async def write(self, work: Callable[[Connection, int], Awaitable[R]], *, notify: bool = True) -> R:
        """Run `work(connection, term)` in one transaction under the current term.

        Raise LeadershipLost, with nothing written, if this process does not lead or a newer term has begun. `work` runs
        again from the start when the database asks for a retry. `notify`: whether the write signals other loops.
        """
        term = self._leadership.term
        return await fenced_write(self._database, term, lambda connection: work(connection, term), notify=notify)

    def read(self) -> AbstractAsyncContextManager[Connection]:
        return self._database.read()

    def snapshot(self) -> AbstractAsyncContextManager[Connection]:
        return self._database.snapshot()

    @asynccontextmanager
    async def fenced_read(self) -> AsyncIterator[Connection]:
        """Yield a connection for reads. Raise LeadershipLost if a newer term has begun."""
        async with self._database.read() as connection:
            await terms.check_term(connection, self._leadership.term)
            yield connection
