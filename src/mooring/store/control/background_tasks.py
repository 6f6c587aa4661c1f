"""The background tasks of all servers, so that any server can list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.tables import background_tasks, servers


class TaskState(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def failures(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    @property
    def failed_at(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class TaskReport:
    server: str
    name: str
    status: str
    started_at: datetime | None
    failures: int
    error: str | None
    failed_at: datetime | None


async def report(connection: AsyncConnection, *, server: str, states: Sequence[TaskState]) -> None:
    """Replace the previous report of this server, and delete reports of servers that no longer exist."""
    gone = background_tasks.c.server.not_in(select(servers.c.name))
    await connection.execute(delete(background_tasks).where((background_tasks.c.server == server) | gone))
    rows = [
        {
            "server": server,
            "name": state.name,
            "status": state.status,
            "started_at": state.started_at,
            "failures": state.failures,
            "error": state.error,
            "failed_at": state.failed_at,
        }
        for state in states
    ]
    await connection.execute(insert(background_tasks), rows)


async def reported(connection: AsyncConnection) -> list[TaskReport]:
    """Return the reports of all servers, ordered by server and name."""
    row = background_tasks.c
    rows = await connection.execute(select(background_tasks).order_by(row.server, row.name))
    return [TaskReport(**found._mapping) for found in rows]
