"""The fenced write: a transaction that commits only while the leader's term is current."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mooring.store.control import leadership
from mooring.store.core.engine import Connection, Database

R = TypeVar("R")


async def fenced_write(
    database: Database, term: int, work: Callable[[Connection], Awaitable[R]], *, notify: bool = True
) -> R:
    """Run `work` in one transaction whose first statement locks and checks `term`.

    Raise LeadershipLost, with nothing written, if a newer term has begun. The lock lasts until the commit, so no other
    leader can begin a term in between. `notify`: whether other loops may be waiting for the result.
    """

    async def fenced(connection: Connection) -> R:
        await leadership.fence(connection, term)
        return await work(connection)

    return await database.write(fenced, notify=notify)
