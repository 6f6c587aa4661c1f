"""Events: what changed, so that a reader knows which rows to read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

Noun = Literal["workload", "task", "node", "pool"]


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the feed. It carries no state, only where to look; `node_id` is the node whose counters moved."""

    revision: int
    noun: Noun
    object_id: UUID
    version: int
    kind: str
    node_id: UUID | None = None
    workload_id: UUID | None = None
