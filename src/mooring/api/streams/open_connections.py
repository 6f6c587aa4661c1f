"""Connections that stay open, such as exec, port forwarding, output, event streams and long polls.

A request is authorised once, when it arrives. What stays open is authorised again every second, by the same rules: a
user who was deactivated, a keypair that was removed or expired, a lost membership or role ends it, on every server that
has a part in it. This asks the database, not the event feed: no lost signal can keep a connection open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import structlog

from mooring import clock
from mooring.api.auth.logins import Login, renewed
from mooring.model.errors import MooringError, NotAuthenticated
from mooring.model.tenancy.tenants import Principal
from mooring.store.core.engine import Database

_log = structlog.get_logger(__name__)
RECHECK_SECONDS = 1.0
"""Pause between two rechecks: with the recheck itself, the longest that a connection outlives its authorisation."""
_AT_ONCE = 1000
"""Logins per query."""
LAST_MESSAGE_SECONDS = 1.0
"""Time for the client to receive the reason for the end of its stream."""
T = TypeVar("T")


class AccessRevoked(NotAuthenticated):
    """An open connection lost its authorisation."""

    code = "access-revoked"


class OpenConnection:
    def __init__(self, login: Login, authorise: Callable[[Principal], None]) -> None:
        self.login = login
        self.authorise = authorise
        self._revoked: asyncio.Future[AccessRevoked] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        return not self._revoked.done()

    def revoke(self, problem: AccessRevoked) -> None:
        if self.open:
            self._revoked.set_result(problem)

    async def run(self, work: Awaitable[T], *, grace_seconds: float = 0.0) -> T:
        """Return the result of the work, or raise AccessRevoked if access ends first.

        Then the work is cancelled, after a grace period in which it can end by itself.
        """
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._revoked}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and grace_seconds:
                await asyncio.wait({task}, timeout=grace_seconds)
            if not task.done():
                raise self._revoked.result()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def each(self, source: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items of the source; raise AccessRevoked when access ends. Closes the source."""
        try:
            while self.open:
                try:
                    item = await self.run(anext(source))
                except StopAsyncIteration:
                    return
                yield item
            raise self._revoked.result()
        finally:
            close: Callable[[], Awaitable[Any]] | None = getattr(source, "aclose", None)
            if close is not None:
                await close()


class OpenConnections:
    """The open connections of this process."""

    def __init__(self, database: Database, *, now: Callable[[], datetime] = clock.now) -> None:
        self._database = database
        self._now = now
        self._open: set[OpenConnection] = set()
        self._some = asyncio.Event()

    @contextmanager
    def opened(self, login: Login, authorise: Callable[[Principal], None]) -> Iterator[OpenConnection]:
        """Register a connection for the block. `authorise` raises if the principal may not have it open."""
        connection = OpenConnection(login, authorise)
        self._open.add(connection)
        self._some.set()
        try:
            yield connection
        finally:
            self._open.discard(connection)

    def __len__(self) -> int:
        return len(self._open)

    async def follow(self) -> None:
        """Recheck every second while something is open, indefinitely."""
        while True:
            await self._some.wait()
            if not self._open:
                self._some.clear()
                continue
            try:
                await self.recheck()
            except Exception as error:
                # Nobody can log in either while the database is away; it is asked again in a second.
                _log.warning("Cannot check whether open connections are still allowed", error=repr(error))
            await asyncio.sleep(RECHECK_SECONDS)

    async def recheck(self) -> None:
        """Revoke the connections that are no longer allowed."""
        connections = [each for each in self._open if each.open]
        logins = list({each.login for each in connections})
        for start in range(0, len(logins), _AT_ONCE):
            part = logins[start : start + _AT_ONCE]
            async with self._database.read() as database:
                found = await renewed(database, part, self._now())
            for each in connections:
                if each.login in found and (problem := _problem(each, found[each.login])) is not None:
                    _log.info("Access was revoked", user=each.login.principal.username, reason=problem.message)
                    each.revoke(problem)


def _problem(connection: OpenConnection, now: Login | NotAuthenticated) -> AccessRevoked | None:
    if isinstance(now, NotAuthenticated):
        return AccessRevoked(f"access was revoked while this was open: {now.message}")
    try:
        connection.authorise(now.principal)
    except MooringError as problem:
        return AccessRevoked(f"access was revoked while this was open: {problem.message}")
    return None
