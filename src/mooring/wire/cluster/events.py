"""Events and pages of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from mooring.model.events import Noun
from mooring.wire.fields import Answer


class EventView(Answer):
    """One committed change. The names and `details` are included only with `expand=true`."""

    cursor: str
    """Its position in the feed; a reader continues after it with `since`."""
    revision: int
    """Unique; grows in the order in which changes were written, which is not always that of their commits."""
    noun: Noun
    id: UUID
    version: int
    kind: str
    at: datetime
    term: int | None = None
    """The term of the leader that made the change; None for changes by users and agents."""
    workload_id: UUID | None = None
    node_id: UUID | None = None
    workload: str | None = None
    task_index: int | None = None
    node: str | None = None
    pool: str | None = None
    timeslot: str | None = None
    details: dict[str, Any] | None = None
    """The inputs and the result of the decision."""


class EventList(Answer):
    events: list[EventView]
    next: str
    """The cursor of the next page."""
    more: bool
