"""Holds: capacity held for a chosen placement until it is bound or the hold expires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID


class Purpose(StrEnum):
    """The condition that a hold waits for: prepared agents, or victims that have left."""

    PREPARE = "prepare"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True)
class Hold:
    id: UUID
    task_id: UUID
    workload_id: UUID
    node_id: UUID
    purpose: Purpose
    created_at: datetime
    expires_at: datetime

    def is_expired(self, now: datetime) -> bool:
        return now >= self.expires_at
