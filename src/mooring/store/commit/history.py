"""History and feed of one transaction, collected while it works and written at its end, a statement each."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.store import events
from mooring.store.sets import Statement, Writes

_INSERT = Statement(
    """
    INSERT INTO status_history
        (noun, object_id, workload_id, old_status, new_status, actor, reason, at, term)
    SELECT i.noun, i.object_id, i.workload_id, i.old_status, i.new_status, i.actor, i.reason, {at}, {term}
    FROM {rows} i
    """,
    {
        "object_id": "uuid",
        "noun": "text",
        "workload_id": "uuid",
        "old_status": "text",
        "new_status": "text",
        "actor": "text",
        "reason": "text",
    },
    at="timestamptz",
    term="bigint",
)
_NOUN = 1


@dataclass(slots=True)
class Journal:
    """Who acts, when, in which term; and what has happened so far."""

    actor: str
    now: datetime
    term: int | None = None
    _history: list[tuple[Any, ...]] = field(default_factory=list)
    _events: list[events.NewEvent] = field(default_factory=list)

    def note(
        self, noun: str, object_id: UUID, workload_id: UUID | None, old: str, new: str, reason: str | None
    ) -> None:
        """A change of a status."""
        text = reason[:500] if reason else None
        self._history.append((object_id, noun, workload_id, old, new, self.actor, text))

    def tell(self, event: events.NewEvent) -> None:
        self._events.append(event)

    def write(self, writes: Writes) -> None:
        if self._history:
            writes.add_runs(_INSERT, self._history, alike=_NOUN, at=self.now, term=self.term)
        events.tell(writes, self._events, self.now, self.term)
