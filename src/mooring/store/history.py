"""History and feed of one transaction, collected while it works and written at its end, a statement each."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from mooring.store import events
from mooring.store.ids import new_id
from mooring.store.tables import status_history

_INSERT = insert(status_history)


@dataclass(slots=True)
class Journal:
    """Who acts, when, in which term; and what has happened so far."""

    actor: str
    now: datetime
    term: int | None = None
    _history: list[dict[str, Any]] = field(default_factory=list)
    _events: list[events.NewEvent] = field(default_factory=list)

    def note(
        self, noun: str, object_id: UUID, workload_id: UUID | None, old: str, new: str, reason: str | None
    ) -> None:
        """A change of a status."""
        self._history.append(
            {
                "id": new_id(),
                "noun": noun,
                "object_id": object_id,
                "workload_id": workload_id,
                "old_status": str(old),
                "new_status": str(new),
                "actor": self.actor,
                "reason": reason[:500] if reason else None,
                "at": self.now,
                "term": self.term,
            }
        )

    def tell(self, event: events.NewEvent) -> None:
        self._events.append(event)

    async def write(self, connection: AsyncConnection) -> None:
        if self._history:
            await connection.execute(_INSERT, self._history)
        await events.append(connection, self._events, self.now, self.term)
