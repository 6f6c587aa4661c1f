"""The control loops of the leader, so that any server can list them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.model.loops import LoopState
from mooring.store.tables import loops


@dataclass(frozen=True, slots=True)
class LoopReport:
    server: str
    term: int
    state: LoopState


async def report(connection: AsyncConnection, states: Sequence[LoopState], *, server: str, term: int) -> None:
    """Replace the previous report."""
    await connection.execute(delete(loops))
    rows = [{"server": server, "term": term, **asdict(state)} for state in states]
    await connection.execute(insert(loops), rows)


async def reported(connection: AsyncConnection) -> list[LoopReport]:
    """Return the last reports, ordered by name."""
    rows = await connection.execute(select(loops).order_by(loops.c.name))
    found = (dict(row._mapping) for row in rows)
    return [LoopReport(row.pop("server"), row.pop("term"), LoopState(**row)) for row in found]
