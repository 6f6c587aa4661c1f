"""Records of logins among the actions (`mooring actions --noun login`), in a bounded number.

Anyone can fail to log in, as often as the limits allow: the number of rows about failures is bounded per time, and the
next row says how many were left out. Names of accounts that do not exist are not kept: people type passwords there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from mooring.store.core.engine import Database
from mooring.store.tenancy import admin_actions
from mooring.store.tenancy.admin_actions import LOGIN, Actor
from mooring.store.tenancy.users import Credentials

UNKNOWN = "(unknown)"
_BURST = 100.0
_ROWS_PER_SECOND = 0.1


class _Budget:
    """Maximum rows of a burst; after that, one every ten seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = _BURST
        self._at = clock()
        self._left_out = 0

    def take(self) -> int | None:
        """Return the number of rows left out before this one; None if this one is left out, too."""
        now = self._clock()
        self._left, self._at = min(_BURST, self._left + (now - self._at) * _ROWS_PER_SECOND), now
        if self._left < 1:
            self._left_out += 1
            return None
        self._left -= 1
        left_out, self._left_out = self._left_out, 0
        return left_out


class LoginRecords:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        # A flood of failures for unknown names does not hide those of real accounts.
        self._known, self._unknown = _Budget(clock), _Budget(clock)

    async def succeeded(self, username: str, found: Credentials, address: str | None, now: datetime) -> None:
        await self._write(Actor(found.user_id, username, address), "login", username, now)

    async def failed(self, username: str, found: Credentials | None, address: str | None, now: datetime) -> None:
        left_out = (self._known if found is not None else self._unknown).take()
        if left_out is None:
            return
        name = UNKNOWN if found is None else username
        actor = Actor(None if found is None else found.user_id, name, address)
        await self._write(actor, "login-failed", name, now, {"left_out": left_out} if left_out else None)

    async def known_address(self, username: str, address: str | None, since: datetime) -> bool:
        """Return whether a login to the account from this address has succeeded since then, at any server."""
        async with self._database.read() as connection:
            return await admin_actions.has_logged_in(connection, username, address, since)

    async def _write(
        self, actor: Actor, action: str, username: str, now: datetime, after: admin_actions.State | None = None
    ) -> None:
        await self._database.write(
            lambda c: admin_actions.record(c, actor, action, LOGIN, username, now=now, after=after), notify=False
        )
