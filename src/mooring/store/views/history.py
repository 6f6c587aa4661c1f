"""The status history of a workload and its tasks, with usernames."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store.core.chunks import chunks
from mooring.store.tables import status_history, tasks, users


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    at: datetime
    noun: str
    object_id: UUID
    task_index: int | None
    attempt: int | None
    old_status: str
    new_status: str
    actor: str
    """A username, or the component of Mooring that made the change."""
    reason: str | None
    term: int | None


async def of_workload(
    connection: AsyncConnection,
    workload_id: UUID,
    *,
    limit: int,
    noun: str | None = None,
    leaving_out: Collection[tuple[str, str]] = (),
) -> list[HistoryEntry]:
    """Return the newest `limit` changes in chronological order.

    `leaving_out` holds pairs of old and new status to omit, because the reader does not distinguish them.
    """
    history = status_history.c
    query = (
        select(
            history.at,
            history.noun,
            history.object_id,
            tasks.c.task_index,
            tasks.c.attempt,
            history.old_status,
            history.new_status,
            history.actor,
            history.reason,
            history.term,
        )
        .join(tasks, tasks.c.id == history.object_id, isouter=True)
        .where(history.workload_id == workload_id)
        .order_by(history.at.desc(), history.id.desc())
        .limit(limit)
    )
    if noun is not None:
        query = query.where(history.noun == noun)
    if leaving_out:
        query = query.where(tuple_(history.old_status, history.new_status).not_in(list(leaving_out)))
    rows = list(await connection.execute(query))
    names = await _usernames(connection, {row.actor for row in rows})
    return [HistoryEntry(**{**row._mapping, "actor": names.get(row.actor, row.actor)}) for row in reversed(rows)]


async def _usernames(connection: AsyncConnection, actors: Iterable[str]) -> dict[str, str]:
    """Return the names of the actors that are user ids."""
    ids = [user_id for actor in actors if (user_id := _as_id(actor)) is not None]
    names: dict[str, str] = {}
    for part in chunks(ids):
        rows = await connection.execute(select(users.c.id, users.c.name).where(users.c.id.in_(part)))
        names.update((str(row.id), row.name) for row in rows)
    return names


def _as_id(actor: str) -> UUID | None:
    try:
        return UUID(actor)
    except ValueError:
        return None
