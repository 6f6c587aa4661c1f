"""The registry of server processes; each updates its record periodically."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.inserts import insert_new
from mooring.store.tables import servers


@dataclass(frozen=True, slots=True)
class ServerRecord:
    name: str
    role: str
    """As configured: `all`, `scheduler` or `api`. The leader is in `leadership`."""
    url: str
    version: str
    started_at: datetime
    last_seen_at: datetime
    election: str | None = None
    """Kind of election: `alone`, `database` or `etcd`; None: it never leads."""
    problem: str | None = None
    """The reason why it cannot take part in the election now."""
    problem_since: datetime | None = None

    @property
    def may_lead(self) -> bool:
        return self.role != "api"


async def note(connection: AsyncConnection, server: ServerRecord) -> None:
    values = asdict(server)
    if not await insert_new(connection, servers, values):
        await connection.execute(update(servers).where(servers.c.name == server.name).values(values))


async def leave(connection: AsyncConnection, name: str) -> None:
    await connection.execute(delete(servers).where(servers.c.name == name))


async def forget(connection: AsyncConnection, before: datetime) -> None:
    """Delete the records of servers that were last seen before this time."""
    await connection.execute(delete(servers).where(servers.c.last_seen_at < before))


async def everyone(connection: AsyncConnection) -> list[ServerRecord]:
    """Return all servers, ordered by name."""
    rows = await connection.execute(select(servers).order_by(servers.c.name))
    return [ServerRecord(**row._mapping) for row in rows]
