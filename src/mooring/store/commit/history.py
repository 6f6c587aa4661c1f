"""Status history and events of one transaction, collected while it is planned and written by one statement each."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.store.control import events
from mooring.store.core.batch_sql import Statement, Writes

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
class ChangeLog:
    """The history rows and events of one transaction, with its actor, time and term."""

    actor: str
    now: datetime
    term: int | None = None
    _history: list[tuple[Any, ...]] = field(default_factory=list)
    _events: list[events.NewEvent] = field(default_factory=list)

    def add_status(
        self, noun: str, object_id: UUID, workload_id: UUID | None, old: str, new: str, reason: str | None
    ) -> None:
        """Add a change of a status."""
        text = reason[:500] if reason else None
        self._history.append((object_id, noun, workload_id, old, new, self.actor, text))

    def add_event(self, event: events.NewEvent) -> None:
        self._events.append(event)

    def write(self, writes: Writes) -> None:
        if self._history:
            writes.add_runs(_INSERT, self._history, alike=_NOUN, at=self.now, term=self.term)
        events.add(writes, self._events, self.now, self.term)
